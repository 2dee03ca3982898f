package builder

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

const (
	// Of all addresses of a build together, as the files of its context have.
	mostFetched = 1 << 30
	// Without a byte.
	silence = time.Minute
	// Of an address, in the words of a failure.
	mostAddress = 200
)

// As the files of a context: the same content is the same layer, whenever it is made.
var fetchedAt = time.Date(1980, 1, 2, 0, 0, 0, 0, time.UTC)

var checksums = map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}

// Fetched is a file that a Dockerfile adds from an address.
type Fetched struct {
	// Path is below the folder of files.
	Path    string `json:"path"`
	Address string `json:"address"`
	// Checksum is what the content has to have, "sha256:..."; empty: whatever comes.
	Checksum string `json:"checksum"`
	// Line is that of the Dockerfile.
	Line int `json:"line"`
}

func (f Fetched) where() string {
	return fmt.Sprintf("Dockerfile, line %d, ADD of %.*s", f.Line, mostAddress, f.Address)
}

func (f Fetched) failure(reason, why string) error {
	return &failure{reason, f.where() + ": " + why, f.Line}
}

// answered is what a server, or the relay, answers instead of a content.
type answered struct {
	code   int
	status string
}

func (a *answered) Error() string { return "the answer is " + a.status }

// client fetches as a step does: by the relay alone.
func (o *outside) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: relay}),
		DialContext:       o.dial,
		DisableKeepAlives: true,
		// What is kept is what was sent.
		DisableCompression: true,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return &answered{answer.StatusCode, answer.Status}
			}
			return nil
		},
	}}
}

// fetchAll writes what is behind addresses to a folder.
func fetchAll(ctx context.Context, client *http.Client, folder string, wanted []Fetched) error {
	if len(wanted) == 0 {
		return nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left := int64(mostFetched)
	for _, one := range wanted {
		length, err := one.fetch(ctx, client, root, left)
		if err != nil {
			return one.judged(err)
		}
		left -= length
	}
	return nil
}

func (f Fetched) fetch(ctx context.Context, client *http.Client, to *os.Root, most int64) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	heard := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing came for %v", silence)) })
	defer heard.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Address, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, cause(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return 0, &answered{answer.StatusCode, answer.Status}
	}
	kind, digits, _ := strings.Cut(f.Checksum, ":")
	seen := checksums[kind]()
	content := &content{from: answer.Body, heard: heard, left: most}
	if err := to.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
		return 0, err
	}
	if err := file(to, f.Path, 0o644, fetchedAt, io.TeeReader(content, seen)); err != nil {
		return 0, cause(ctx, err)
	}
	if got := hex.EncodeToString(seen.Sum(nil)); digits != "" && got != digits {
		return 0, fmt.Errorf("it has the checksum %s:%s, and not %s", kind, got, f.Checksum)
	}
	return most - content.left, nil
}

// cause is why a request was given up, if that was done here.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

func (f Fetched) judged(err error) error {
	var refused *answered
	var failed *url.Error
	switch {
	case full(err), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errTooMuch):
		return f.failure(bySize, err.Error())
	case errors.As(err, &refused) && refused.code == http.StatusServiceUnavailable:
		return f.failure(byEgress, refused.status)
	case errors.As(err, &refused):
		return f.failure(byAddress, refused.Error())
	case errors.As(err, &failed):
		return f.failure(byAddress, failed.Err.Error())
	default:
		return f.failure(byAddress, err.Error())
	}
}

var errTooMuch = fmt.Errorf("with it there are more than the %d bytes that a build may fetch", mostFetched)

// content is read as far as it may be long, and tells that it comes.
type content struct {
	from  io.Reader
	heard *time.Timer
	left  int64
}

func (c *content) Read(into []byte) (int, error) {
	length, err := c.from.Read(into)
	c.heard.Reset(silence)
	if c.left -= int64(length); c.left < 0 {
		return 0, errTooMuch
	}
	return length, err
}
