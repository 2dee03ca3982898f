package builder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// What ends a build.
	byStep, byRoom, byBuilder = "step", "room", "builder"
	// Of what is fetched: the address does not answer with it, it is too large, egress does not work.
	byAddress, bySize, byEgress = "address", "size", "egress"
	// Of one line of the builder's words.
	mostLine = 16 << 10
	// How often it is looked how much a build has written, and how long its programs have to end.
	lookEvery, endWithin = time.Second, 5 * time.Second
	refused              = "error: "
)

// Wish is what is to be built.
type Wish struct {
	Target    string            `json:"target"`
	Arguments map[string]string `json:"arguments"`
	// Bases are the digests of manifests, by the names that the Dockerfile has for them.
	Bases map[string]string `json:"bases"`
	// Secrets are names of files beside the Dockerfile, by id.
	Secrets map[string]string `json:"secrets"`
	// Files: there is a folder of files beside the Dockerfile, which it knows by a name too.
	Files bool `json:"files"`
	// Network: its steps have the daemon's, in which there is the relay's port and nothing else.
	Network bool `json:"network"`
	// Fetched are those of the files that come from addresses.
	Fetched []Fetched `json:"fetched"`
}

// places are where a build's files are.
type places struct{ context, beside, bases, out string }

func (p places) files() string { return filepath.Join(p.beside, "files") }

// words returns the command line of a build. The Dockerfile is one that the control plane has judged; what it names that is
// no base of the wish could only be had with a network.
func (w Wish) words(at places) []string {
	words := []string{
		"build", "--progress", "plain", "--frontend", "dockerfile.v0", "--opt", "filename=Dockerfile",
		"--local", "context=" + at.context, "--local", "dockerfile=" + at.beside, "--oci-layout", "bases=" + at.bases,
		"--output", "type=oci,tar=false,oci-mediatypes=true,compression=zstd,dest=" + at.out,
	}
	if !w.Network {
		words = append(words, "--opt", "force-network-mode=none")
	}
	if w.Target != "" {
		words = append(words, "--opt", "target="+w.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Arguments)) {
		words = append(words, "--opt", "build-arg:"+name+"="+w.Arguments[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.Bases)) {
		words = append(words, "--opt", "context:"+name+"=oci-layout://bases@"+w.Bases[name])
	}
	if w.Files {
		words = append(words, "--local", "files="+at.files(), "--opt", "context:rollbox/files=local:files")
	}
	for _, id := range slices.Sorted(maps.Keys(w.Secrets)) {
		words = append(words, "--secret", "id="+id+",src="+filepath.Join(at.beside, w.Secrets[id]))
	}
	return words
}

// failure is why there is no image.
type failure struct {
	reason, why string
	// Of the Dockerfile; 0: it is not known.
	line int
}

func (f *failure) Error() string { return f.why }

// solve runs BuildKit's client, and tells what it says.
func solve(ctx context.Context, client []string, words []string, full func() bool, tell func(string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	command := exec.CommandContext(ctx, client[0], append(slices.Clone(client[1:]), words...)...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endWithin
	said, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			if full() {
				cancel(&failure{reason: byRoom, why: "the build has filled the disk that it may have"})
			}
			time.Sleep(lookEvery)
		}
	}()
	last := listen(said, tell)
	if err = command.Wait(); err == nil {
		return nil
	}
	var because *failure
	if errors.As(context.Cause(ctx), &because) {
		return because
	}
	return judged(last, err)
}

// listen tells each line, and returns the last one in which the client says why it has failed.
func listen(said io.Reader, tell func(string)) string {
	lines, last := bufio.NewReaderSize(said, mostLine), ""
	for {
		line, _, err := lines.ReadLine()
		if err != nil {
			return last
		}
		text := string(line)
		if strings.HasPrefix(text, refused) {
			last = strings.TrimPrefix(text, refused)
			continue
		}
		tell(text + "\n")
	}
}

func judged(said string, err error) error {
	if said == "" {
		return &failure{reason: byBuilder, why: fmt.Sprintf("BuildKit's client has failed: %v", err)}
	}
	why := strings.TrimPrefix(said, "failed to solve: ")
	for _, word := range []string{"code = Unavailable", "connection refused", "closing transport", "error reading from server"} {
		if strings.Contains(said, word) {
			return &failure{reason: byBuilder, why: why}
		}
	}
	if strings.Contains(said, "no space left on device") {
		return &failure{reason: byRoom, why: why}
	}
	return &failure{reason: byStep, why: why}
}

// over returns whether the file system of a folder has more than so many bytes in it.
func over(folder string, most int64) bool {
	var seen unix.Statfs_t
	if unix.Statfs(folder, &seen) != nil {
		return false
	}
	return int64(seen.Blocks-seen.Bfree)*seen.Bsize >= most || seen.Bavail == 0
}
