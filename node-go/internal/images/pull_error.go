package images

import (
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
)

// What containerd says is for people, so words decide, in this order: a message of a refusal may hold "not found" too.
// The control plane judges a pod that waits for its image by the same ones.
var (
	rate      = regexp.MustCompile(`(?i)\b429\b|too ?many ?requests|rate limit`)
	format    = regexp.MustCompile(`(?i)exec format error|no match for platform|no matching manifest|specified platform`)
	unreached = regexp.MustCompile(`(?i)no such host|dial tcp|i/o timeout|connection refused|TLS|x509|deadline exceeded`)
	refused   = regexp.MustCompile(`(?i)\b40[13]\b|unauthori[sz]ed|forbidden|denied|no basic auth|authorization failed`)
	absent    = regexp.MustCompile(`(?i)not found|manifest unknown|name unknown`)
	invalid   = regexp.MustCompile(`(?i)invalid reference|failed to parse image reference|couldn't parse image`)
	old       = regexp.MustCompile(`(?i)schema 1\b|manifest\.v1\+`)
	empty     = regexp.MustCompile(`reports content size of zero`)
	full      = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)
)

// notPulled is the problem of a pull that failed.
func notPulled(image string, err error) error {
	if code := status.Code(err); code == codes.Unavailable {
		return containerd.Failed("pull "+image, err)
	}
	// The name of the image may hold any of these words.
	repository, _, _ := strings.Cut(image, "@")
	told := status.Convert(err).Message()
	words := strings.ReplaceAll(strings.ReplaceAll(told, image, ""), repository, "")
	code, why := problem.ImagePullFailed, ""
	switch {
	case old.MatchString(words):
		code, why = problem.Unsupported, "its manifest has schema 1, which no container runtime takes any more: "
	case empty.MatchString(words):
		code, why = problem.Unsupported, "it has a layer of zero bytes, which containerd does not take: "
	case rate.MatchString(words):
		why = "the registry limits the rate of pulls: "
	case format.MatchString(words):
		why = "the image is not for the architecture of the node: "
	case full.MatchString(words):
		why = "the node has no room for it: "
	case invalid.MatchString(words):
		code, why = problem.ImageNotFound, "this is not the name of an image: "
	case unreached.MatchString(words):
		why = "the registry was not reached: "
	case refused.MatchString(words):
		why = "the registry refused the pull: "
	case absent.MatchString(words):
		code = problem.ImageNotFound
	}
	return problem.New(code, "%s: %s%s", image, why, told).With("image", image)
}
