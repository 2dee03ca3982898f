package images

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	records "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
)

const (
	// On containerd's record of a name: when it was made there (Unix ms), for a prefetch or a sandbox's pod.
	broughtLabel = "rollbox.dev/brought"
	// The kubelet's labels of containers and pods.
	namespaceLabel = "io.kubernetes.pod.namespace"
	podLabel       = "io.kubernetes.pod.uid"
	// Events wait meanwhile.
	judgedIn = 10 * time.Second
)

// PullMarks knows which images rollbox has brought to the node. A name is brought by a prefetch, or a sandbox's pod, if
// containerd has made its record after that had begun; then the record gets a label, which outlives this process. An
// image of which any name has none may be needed by somebody else.
type PullMarks struct {
	runtime   *containerd.Runtime
	namespace string
	log       *slog.Logger
	mutex     sync.Mutex
	judged    map[string]bool
}

// NewPullMarks returns the images that are brought for the pods of a namespace.
func NewPullMarks(runtime *containerd.Runtime, namespace string, log *slog.Logger) *PullMarks {
	return &PullMarks{runtime: runtime, namespace: namespace, log: log, judged: map[string]bool{}}
}

// all returns when each marked name was brought (Unix ms).
func (b *PullMarks) all(ctx context.Context) (map[string]int64, error) {
	listed, err := b.runtime.Records.List(ctx, &records.ListImagesRequest{Filters: []string{`labels."` + broughtLabel + `"`}})
	if err != nil {
		return nil, containerd.Failed("list the records of images", err)
	}
	found := map[string]int64{}
	for _, one := range listed.GetImages() {
		if at, err := strconv.ParseInt(one.GetLabels()[broughtLabel], 10, 64); err == nil {
			found[one.GetName()] = at
		}
	}
	return found, nil
}

// when returns the time at which the youngest name of an image was brought; 0: somebody else has brought one of them.
func when(marked map[string]int64, one *cri.Image) int64 {
	var found int64
	for _, name := range names(one)[1:] {
		at, there := marked[name]
		if !there {
			return 0
		}
		found = max(found, at)
	}
	return found
}

// since marks the names of an image that were made at or after a time.
func (b *PullMarks) since(ctx context.Context, image string, began time.Time) error {
	found, err := b.runtime.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		return containerd.Failed("look for "+image, err)
	}
	if found.GetImage() == nil {
		return nil
	}
	for _, name := range names(found.GetImage())[1:] {
		if err := b.mark(ctx, name, began); err != nil {
			return err
		}
	}
	return nil
}

func (b *PullMarks) mark(ctx context.Context, name string, began time.Time) error {
	found, err := b.runtime.Records.Get(ctx, &records.GetImageRequest{Name: name})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return containerd.Failed("look at the record of "+name, err)
	}
	one := found.GetImage()
	made := one.GetCreatedAt().AsTime()
	if made.Before(began) || one.GetLabels()[broughtLabel] != "" {
		return nil
	}
	labels := map[string]string{broughtLabel: strconv.FormatInt(made.UnixMilli(), 10)}
	_, err = b.runtime.Records.Update(ctx, &records.UpdateImageRequest{
		Image:      &records.Image{Name: name, Labels: labels, Target: one.GetTarget()},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + broughtLabel}},
	})
	if err != nil && status.Code(err) != codes.NotFound {
		return containerd.Failed("mark the record of "+name, err)
	}
	return nil
}

// used judges the image of a container that was made. Cost: nothing for one that was judged; else some calls.
func (b *PullMarks) used(ctx context.Context, container, image string) {
	if image == "" || b.known(image) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, judgedIn)
	defer cancel()
	ours, err := b.judge(ctx, container, image)
	if err != nil {
		b.log.Warn("it is not known who has brought an image", "image", image, "error", err)
		return
	}
	if ours {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		if len(b.judged) >= maxRemembered {
			clear(b.judged)
		}
		b.judged[image] = true
	}
}

// forget judges all images anew: some are gone, or events were missed.
func (b *PullMarks) forget() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	clear(b.judged)
}

func (b *PullMarks) known(image string) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.judged[image]
}

// judge marks what the pod of a container has brought; false: the pod is no sandbox's.
func (b *PullMarks) judge(ctx context.Context, container, image string) (bool, error) {
	found, err := b.runtime.Defined.Get(ctx, &containers.GetContainerRequest{ID: container})
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	if err != nil {
		return false, containerd.Failed("look at container "+container, err)
	}
	labels := found.GetContainer().GetLabels()
	if labels[namespaceLabel] != b.namespace {
		return false, nil
	}
	filter := &cri.PodSandboxFilter{LabelSelector: map[string]string{podLabel: labels[podLabel]}}
	pods, err := b.runtime.Containers.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return false, containerd.Failed("look for the pod of container "+container, err)
	}
	for _, pod := range pods.GetItems() {
		if pod.GetMetadata().GetNamespace() == b.namespace && pod.GetMetadata().GetUid() == labels[podLabel] {
			return true, b.since(ctx, image, time.Unix(0, pod.GetCreatedAt()))
		}
	}
	return false, nil
}
