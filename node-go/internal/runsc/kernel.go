package runsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/layer"
)

const (
	methodPause  = "containerManager.Pause"
	methodResume = "containerManager.Resume"
	methodList   = "containerManager.FSSave"
	methodRead   = "Fs.Read"

	// How long a kernel may take to stop its processes; a busy node takes a tenth of a second.
	stopsIn = 10 * time.Second
	// How long it is waited for to let them go on, before that is left to itself.
	goesOnIn = 5 * time.Second
	// How long a call is left to itself, each for its own.
	patience = 10 * time.Minute
	// How long one attempt to let a kernel go on may take.
	tryWithin = 10 * time.Second
	// A process in that state is in none of those that commands are in for so long.
	stillLooks = 4
	lookEvery  = 250 * time.Millisecond
	// A status is some hundred bytes.
	maxStatusBytes = 16 << 10
)

// Kernels are those of this node.
type Kernels struct {
	folder   string
	log      *slog.Logger
	owned    sync.WaitGroup
	patience time.Duration
	pauses   []time.Duration // between attempts to let one go on; the last one holds for all after it

	mu     sync.Mutex
	worked map[string]bool // by pod: held still, or let go on
}

// New returns the kernels whose control sockets are in a folder, the one that runsc's option root names.
func New(folder string, log *slog.Logger) *Kernels {
	pauses := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	return &Kernels{folder: folder, log: log, patience: patience, pauses: pauses, worked: map[string]bool{}}
}

// take claims a pod's kernel: whoever lets it go on late must not do so in the middle of what holds it next.
func (k *Kernels) take(pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.worked[pod] {
		return false
	}
	k.worked[pod] = true
	return true
}

func (k *Kernels) leave(pod string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.worked, pod)
}

// Wait returns when all processes go on that were let stand still, or when the context ends.
func (k *Kernels) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { k.owned.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Kernel is that of one pod.
type Kernel struct {
	all    *Kernels
	pod    string
	socket string
}

// Of returns the kernel of a pod, by the id that the container runtime has for it.
func (k *Kernels) Of(pod string) *Kernel {
	return &Kernel{all: k, pod: pod, socket: filepath.Join(k.folder, "runsc-"+pod+".sock")}
}

// ErrStill is of a kernel whose processes stand still already, or do not stop.
var ErrStill = errors.New("its processes stand still already")

// Still runs work while all processes of the kernel stand still. They go on when it returns, whatever becomes of it. One
// that is ended in the middle (SIGKILL) leaves them standing still until LetGo.
func (k *Kernel) Still(ctx context.Context, work func(context.Context) error) error {
	if !k.all.take(k.pod) {
		return ErrStill
	}
	stopper, err := k.free(ctx)
	if err != nil {
		k.all.leave(k.pod)
		return err
	}
	held, release, going := make(chan error, 1), make(chan struct{}), make(chan struct{})
	k.all.owned.Go(func() {
		defer k.all.leave(k.pod)
		k.hold(stopper, held, release, going)
	})
	defer func() {
		close(release)
		select {
		case <-going:
		case <-time.After(goesOnIn):
			k.all.log.Warn("a sandbox may stand still", "pod", k.pod)
		}
	}()
	stopping, cancel := context.WithTimeoutCause(ctx, stopsIn, errors.New("its processes do not stop"))
	defer cancel()
	select {
	case err := <-held:
		if err != nil {
			return err
		}
	case <-stopping.Done():
		return context.Cause(stopping)
	}
	return work(ctx)
}

// free returns a connection to a kernel whose processes do not stand still.
func (k *Kernel) free(ctx context.Context) (*connection, error) {
	still, err := k.stands(ctx)
	if err != nil {
		return nil, err
	}
	if still {
		return nil, ErrStill
	}
	return dial(ctx, k.socket)
}

// hold stops the processes, and lets them go on when it is told to. It is not cut with the call that it is for: a kernel
// counts how often it was told to stop, and one that is told to go on more often ends. So both are said on one
// connection, and the second when the first was answered.
func (k *Kernel) hold(stopper *connection, held chan<- error, release <-chan struct{}, going chan<- struct{}) {
	defer close(going)
	err := k.say(stopper, methodPause)
	held <- err
	var refused *RefusedError
	if errors.As(err, &refused) || errors.Is(err, ErrUnknown) {
		stopper.close()
		return
	}
	if err == nil {
		<-release
		err = k.say(stopper, methodResume)
	}
	stopper.close()
	if err != nil {
		k.all.log.Warn("a sandbox may stand still, tried again", "pod", k.pod, "error", err)
		k.insist()
	}
}

func (k *Kernel) say(to *connection, method string) error {
	ctx, cancel := context.WithTimeout(context.Background(), k.all.patience)
	defer cancel()
	return to.call(ctx, method, nil)
}

// insist tries until the processes do not stand still any more, or the kernel is gone. What is clear is looked at once
// more, since a kernel may be slow to do what it was told before.
func (k *Kernel) insist() {
	clear := 0
	for at := 0; ; at++ {
		time.Sleep(k.all.pauses[min(at, len(k.all.pauses)-1)])
		ctx, cancel := context.WithTimeout(context.Background(), tryWithin)
		went, err := k.letGo(ctx)
		cancel()
		switch {
		case Gone(err):
			return
		case err != nil:
			clear = 0
			k.all.log.Warn("a sandbox may stand still", "pod", k.pod, "error", err)
		case went:
			clear = 0
			k.all.log.Warn("a sandbox stood still, it goes on", "pod", k.pod)
		default:
			if clear++; clear == 2 {
				return
			}
		}
	}
}

// Gone reports whether an error is that of a kernel that has ended: its socket is not there, or nobody listens.
func Gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) }

// LetGo lets the processes go on that an agent has left standing still, and reports whether they did. Where that is not
// certain, it is tried again behind the answer until it is.
func (k *Kernel) LetGo(ctx context.Context) (bool, error) {
	if !k.all.take(k.pod) {
		return false, nil
	}
	went, err := k.letGo(ctx)
	if err == nil || Gone(err) {
		k.all.leave(k.pod)
		return went, err
	}
	k.all.owned.Go(func() {
		defer k.all.leave(k.pod)
		k.insist()
	})
	return went, err
}

func (k *Kernel) letGo(ctx context.Context) (bool, error) {
	still, err := k.stands(ctx)
	if err != nil || !still {
		return false, err
	}
	asked, err := dial(ctx, k.socket)
	if err != nil {
		return false, err
	}
	defer asked.close()
	return true, asked.call(ctx, methodResume, nil)
}

// stands reports whether the kernel's processes stand still: the first one, which only ever sleeps, is in a state that is
// neither sleep nor work. Nothing else of a kernel says so.
func (k *Kernel) stands(ctx context.Context) (bool, error) {
	for look := range stillLooks {
		if look > 0 {
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		state, err := k.state(ctx)
		if err != nil || state != "D" {
			return false, err
		}
	}
	return true, nil
}

func (k *Kernel) state(ctx context.Context) (string, error) {
	asked, err := dial(ctx, k.socket)
	if err != nil {
		return "", err
	}
	defer asked.close()
	into, from, err := pipe(0)
	if err != nil {
		return "", err
	}
	defer from.Close()
	argument := map[string]any{"container_id": k.pod, "path": "/proc/1/status", "offset": 0, "size": maxStatusBytes}
	err = asked.call(ctx, methodRead, argument, into)
	_ = into.Close()
	if err != nil {
		return "", err
	}
	// All of it fits into the pipe, and was written before the answer.
	_ = from.SetReadDeadline(time.Now().Add(time.Second))
	text, err := io.ReadAll(io.LimitReader(from, maxStatusBytes))
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if state, is := strings.CutPrefix(line, "State:"); is {
			if words := strings.Fields(state); len(words) > 0 {
				return words[0], nil
			}
		}
	}
	return "", errors.New("the kernel does not tell the state of its first process")
}

// List returns what a container has changed in its file system, without the contents of files. Its kernel has to keep
// that apart from the image, and from its memory, as it does unless runsc's option overlay2 says otherwise.
func (k *Kernel) List(ctx context.Context, container string, bound layer.Bound) ([]layer.Entry, error) {
	asked, err := dial(ctx, k.socket)
	if err != nil {
		return nil, err
	}
	defer asked.close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	into, from, err := pipe(0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	stop := context.AfterFunc(ctx, func() { _ = from.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer error
	var asking sync.WaitGroup
	asking.Go(func() {
		// In the order of gVisor's checkpoints of file systems: what it is, the listing, where pages are, pages.
		argument := map[string]any{"paths": []map[string]string{{"container_name": container, "path": "/"}}}
		answer = asked.call(ctx, methodList, argument, null, into, null, null)
		_ = into.Close()
	})
	found, err := layer.List(from, bound)
	if err == nil {
		// The rest of the last block of the archive, and then the answer.
		_, err = io.Copy(io.Discard, io.LimitReader(from, 1<<20))
	}
	// A kernel that has more to say hears that nobody reads it.
	_ = from.Close()
	asking.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && (answer == nil || !errors.Is(err, io.ErrUnexpectedEOF)):
		return nil, err
	}
	return found, answer
}

// Reader reads files of one container.
type Reader struct {
	container string
	asked     *connection
}

// Reader opens a reader, to be closed, of the container with an id.
func (k *Kernel) Reader(ctx context.Context, container string) (*Reader, error) {
	asked, err := dial(ctx, k.socket)
	if err != nil {
		return nil, err
	}
	return &Reader{container, asked}, nil
}

// Close ends what is under way.
func (r *Reader) Close() { r.asked.close() }

// Read copies a file that has so many bytes. After an error the reader is of no more use.
func (r *Reader) Read(ctx context.Context, path string, size int64, into io.Writer) error {
	kernels, ours, err := pipe(size)
	if err != nil {
		return err
	}
	defer ours.Close()
	stop := context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer error
	var asking sync.WaitGroup
	asking.Go(func() {
		argument := map[string]any{"container_id": r.container, "path": path, "offset": 0, "size": size}
		answer = r.asked.call(ctx, methodRead, argument, kernels)
		_ = kernels.Close()
	})
	read, err := io.CopyN(into, ours, size)
	if err != nil {
		// The kernel hears that nobody reads any more, and answers.
		_ = ours.Close()
	}
	asking.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == io.EOF && answer == nil:
		return fmt.Errorf("%s has %d bytes, and was listed with %d", layer.Shown(path), read, size)
	case answer != nil && (err == nil || err == io.EOF):
		return fmt.Errorf("read %s: %w", layer.Shown(path), answer)
	}
	return err
}
