package runsc

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/layer"
)

const pod = "5f2c9d0e"

// of is a played kernel, and what is asked of it.
type of struct {
	*played.Kernel
	kernels *Kernels
}

func play(t *testing.T) *of {
	t.Helper()
	folder := t.TempDir()
	made := played.Serve(t, filepath.Join(folder, "runsc-"+pod+".sock"))
	return &of{made, New(folder, slog.New(slog.NewTextHandler(io.Discard, nil)))}
}

func (p *of) kernel() *Kernel { return p.kernels.Of(pod) }

func (p *of) gone(t *testing.T) {
	t.Helper()
	p.kernels.owned.Wait()
	if p.Standing() != 0 {
		t.Errorf("it was told to stop %d times more often than to go on", p.Standing())
	}
}

func TestProcessesStandStillForTheWorkAndGoOnWhateverBecomesOfIt(t *testing.T) {
	for _, want := range []error{nil, errors.New("failed")} {
		p := play(t)
		err := p.kernel().Still(context.Background(), func(context.Context) error {
			if p.Standing() != 1 {
				t.Error("they do not stand still")
			}
			return want
		})
		if !errors.Is(err, want) || p.Standing() != 0 {
			t.Errorf("%v, %d", err, p.Standing())
		}
		p.gone(t)
	}
}

func TestACallThatIsCutWhileTheyStopLetsThemGoOn(t *testing.T) {
	p := play(t)
	ctx, cancel := context.WithCancel(context.Background())
	held := make(chan struct{})
	p.Before[methodPause] = func() { cancel(); <-held }
	go func() { <-ctx.Done(); time.Sleep(50 * time.Millisecond); close(held) }()
	err := p.kernel().Still(ctx, func(context.Context) error { t.Error("it worked"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.gone(t)
}

func TestAKernelThatRefusesToStopIsNotToldToGoOn(t *testing.T) {
	p := play(t)
	p.Answer[methodPause] = "no"
	var refused *RefusedError
	err := p.kernel().Still(context.Background(), func(context.Context) error { t.Error("it worked"); return nil })
	if !errors.As(err, &refused) || refused.Words != "no" {
		t.Error(err)
	}
	p.gone(t)
}

func TestWhatAnAgentHasLeftStandingStillGoesOnOnce(t *testing.T) {
	p := play(t)
	p.Stop(1)
	err := p.kernel().Still(context.Background(), func(context.Context) error { t.Error("it worked"); return nil })
	if !errors.Is(err, ErrStill) {
		t.Error(err)
	}
	for _, want := range []bool{true, false} {
		if went, err := p.kernel().LetGo(context.Background()); err != nil || went != want {
			t.Errorf("%v, %v", went, err)
		}
	}
	p.gone(t)
}

func TestOneThatIsNotLetGoOnIsLetSoLater(t *testing.T) {
	p := play(t)
	p.kernels.pauses = []time.Duration{10 * time.Millisecond}
	p.Say(methodResume, "no")
	if err := p.kernel().Still(context.Background(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	// Nobody else holds it meanwhile, whom a late word would let go on.
	if err := p.kernel().Still(context.Background(), nil); !errors.Is(err, ErrStill) {
		t.Error(err)
	}
	if went, err := p.kernel().LetGo(context.Background()); err != nil || went {
		t.Errorf("%v, %v", went, err)
	}
	p.Say(methodResume, "")
	p.gone(t)
	if err := p.kernel().Still(context.Background(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestOneThatStopsAfterItWasGivenUpGoesOn(t *testing.T) {
	p := play(t)
	p.kernels.pauses, p.kernels.patience = []time.Duration{10 * time.Millisecond}, 50*time.Millisecond
	late := make(chan struct{})
	p.Before[methodPause] = func() { <-late }
	var looks atomic.Int32
	p.Before[methodRead] = func() {
		// The first look is before it is told to stop. It stops before the second one has its answer.
		if looks.Add(1) == 2 {
			close(late)
			for p.Standing() == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if err := p.kernel().Still(context.Background(), func(context.Context) error { t.Error("it worked"); return nil }); err == nil {
		t.Error("it stood still")
	}
	p.gone(t)
}

func TestWhatAnAgentCannotLetGoOnIsTriedAgain(t *testing.T) {
	p := play(t)
	p.kernels.pauses = []time.Duration{10 * time.Millisecond}
	p.Stop(1)
	p.Say(methodResume, "no")
	if _, err := p.kernel().LetGo(context.Background()); err == nil {
		t.Error("it went")
	}
	p.Say(methodResume, "")
	p.gone(t)
}

func TestAFileIsReadAsItWasListed(t *testing.T) {
	p := play(t)
	large := strings.Repeat("0123456789", 30_000)
	p.Files["/a"], p.Files["/large"], p.Files["/empty"] = "content", large, ""
	reader, err := p.kernel().Reader(context.Background(), "c")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for path, want := range map[string]string{"/a": "content", "/large": large} {
		var read bytes.Buffer
		if err := reader.Read(context.Background(), path, int64(len(want)), &read); err != nil || read.String() != want {
			t.Errorf("%s: %v, %d bytes", path, err, read.Len())
		}
	}
	if err := reader.Read(context.Background(), "/a", 8, io.Discard); err == nil || !strings.Contains(err.Error(), "7 bytes") {
		t.Error(err)
	}
	// A kernel that says more than it was asked for is not read on.
	if err := reader.Read(context.Background(), "/a", 3, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestAKernelThatSaysNothingIsGivenUp(t *testing.T) {
	p := play(t)
	end := make(chan struct{})
	p.Before[methodRead] = func() { <-end }
	reader, err := p.kernel().Reader(context.Background(), "c")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	late := errors.New("late")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, late)
	defer cancel()
	if err := reader.Read(ctx, "/a", 1, io.Discard); !errors.Is(err, late) {
		t.Error(err)
	}
	close(end)
}

func TestAListingAndWhatARefusalIs(t *testing.T) {
	p := play(t)
	var listed bytes.Buffer
	archive := tar.NewWriter(&listed)
	_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755})
	_ = archive.Close()
	p.List = listed.Bytes()
	bound := layer.Bound{Entries: 1000}
	if found, err := p.kernel().List(context.Background(), "target", bound); err != nil || len(found) != 1 || found[0].Path != "/" {
		t.Errorf("%v, %v", found, err)
	}
	p.List = []byte(strings.Repeat("no archive", 100))
	if _, err := p.kernel().List(context.Background(), "target", bound); err == nil {
		t.Error("it was read")
	}
	p.Answer[methodList] = "no checkpointable filesystems"
	var refused *RefusedError
	if _, err := p.kernel().List(context.Background(), "target", bound); !errors.As(err, &refused) {
		t.Error(err)
	}
	p.Answer[methodList] = "unknown method"
	if _, err := p.kernel().List(context.Background(), "target", bound); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestAKernelThatIsNotThereIsSaid(t *testing.T) {
	kernels := New(t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := kernels.Of(pod).Still(context.Background(), nil); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
