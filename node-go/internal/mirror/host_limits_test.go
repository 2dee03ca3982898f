package mirror

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"rollbox.dev/node/internal/wire"
)

func TestARegistryThatAsksForAPauseHoldsUpNoOther(t *testing.T) {
	limited, other, private := serve(t), serve(t), serve(t)
	slow := limited.push(t, "team/app", image(t, "one", "two", "three"))
	fast := other.push(t, "team/app", image(t, "four"))
	limited.interfere(answering("/blobs/", http.StatusTooManyRequests, "Retry-After", "100"))
	copier := copierFor(t, limited, private, time.Minute)
	copier.Upstream = NewRetryAfter(NewGuard([]string{limited.host, other.host}).Transport(time.Minute))
	copier.places = newPlaces(1)
	ctx, cancel := context.WithCancel(t.Context())
	paused, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		told := false
		_, err := copier.Copy(ctx, wish(slow), func(now *wire.CopyProgress) error {
			if now.Phase == wire.CopyProgress_PAUSED && !told {
				told = true
				close(paused)
			}
			return nil
		})
		ended <- err
	}()
	<-paused
	asked := wish(fast)
	asked.Target = "mirror/other"
	copied(t, copier, asked)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOfOneRegistryHalfOfTheCopiesAreAtMost(t *testing.T) {
	hung, other, private := serve(t), serve(t), serve(t)
	first, second := hung.push(t, "team/app", image(t, "one")), hung.push(t, "team/app", image(t, "two"))
	fast := other.push(t, "team/app", image(t, "three"))
	hung.interfere(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	})
	copier := copierFor(t, hung, private, 10*time.Minute)
	copier.Upstream = NewRetryAfter(NewGuard([]string{hung.host, other.host}).Transport(10 * time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, one := range []string{first, second} {
		go func() {
			_, err := copier.Copy(ctx, wish(one), quiet)
			ended <- err
		}()
	}
	// Both have found that there is no copy yet.
	for private.count("HEAD", "/manifests/copy-") < 2 {
		time.Sleep(time.Millisecond)
	}
	asked := wish(fast)
	asked.Target = "mirror/other"
	copied(t, copier, asked)
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	copier.Wait()
	if len(copier.places.hosts) != 0 {
		t.Errorf("%d registries are remembered", len(copier.places.hosts))
	}
}

func TestConversionsHoldUpNoCopy(t *testing.T) {
	upstream, private := serve(t), serve(t)
	first, second := upstream.push(t, "team/app", image(t, "one")), upstream.push(t, "team/app", image(t, "two"))
	fast := upstream.push(t, "team/app", image(t, "three"))
	copier := copierFor(t, upstream, private, time.Minute)
	copier.places = newPlaces(1)
	begun := make(chan struct{}, 2)
	copier.Forms = map[wire.ImageForm]Converter{
		wire.ImageForm_ESTARGZ: func(ctx context.Context, _ v1.Image, _ string, _ []string, _ func(), _ func(int64)) (v1.Image, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, at := range []string{first, second} {
		go func() {
			_, err := copier.Copy(ctx, lazyWish(at), quiet)
			ended <- err
		}()
	}
	<-begun
	asked := wish(fast)
	asked.Target = "mirror/other"
	copied(t, copier, asked)
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestARegistryThatLimitsHoldsUpNoOtherConversion(t *testing.T) {
	limiting, other, private := serve(t), serve(t), serve(t)
	slow, fast := limiting.push(t, "team/app", image(t, "one")), other.push(t, "team/app", image(t, "two"))
	limiting.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	copier := copierFor(t, limiting, private, time.Minute)
	copier.PlainRegistries = []string{limiting.host, other.host}
	copier.Upstream = NewRetryAfter(NewGuard(copier.PlainRegistries).Transport(time.Minute))
	copier.Forms = map[wire.ImageForm]Converter{
		wire.ImageForm_ESTARGZ: func(_ context.Context, image v1.Image, _ string, _ []string, _ func(), _ func(int64)) (v1.Image, error) {
			return image, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	paused, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		_, err := copier.Copy(ctx, lazyWish(slow), func(now *wire.CopyProgress) error {
			if now.GetPhase() == wire.CopyProgress_PAUSED {
				once.Do(func() { close(paused) })
			}
			return nil
		})
		ended <- err
	}()
	<-paused
	asked := lazyWish(fast)
	asked.Target, asked.Through = "estargz/other", "mirror/other"
	copied(t, copier, asked)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPartsThatGoOnShareThePlaceOfTheirCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newPlaces(1)
		mine, leave, err := all.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		mine.pause()
		mine.pause()
		_, othersLeave, err := all.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		resumed := make(chan error, 2)
		for range 2 {
			go func() { resumed <- mine.resume(t.Context()) }()
		}
		synctest.Wait()
		if len(resumed) != 0 {
			t.Error("it went on without a place")
		}
		othersLeave()
		for range 2 {
			if err := <-resumed; err != nil {
				t.Error(err)
			}
		}
		leave()
		if !all.all.TryAcquire(1) {
			t.Error("its place was not given back")
		}
	})
}

// drip is a body that brings a few bytes every now and then.
type drip struct {
	bytes int
	every time.Duration
	left  int
}

func (d *drip) Read(into []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	time.Sleep(d.every)
	return min(d.bytes, len(into)), nil
}

func (d *drip) Close() error { return nil }

func TestARegistryThatDripsIsGivenUp(t *testing.T) {
	for title, c := range map[string]struct {
		body  drip
		slack time.Duration // of the reader
		err   error
	}{
		"a byte at a time":            {drip{1, 10 * time.Second, 100}, 0, errStalled},
		"half of what is asked":       {drip{leastRate / 2, time.Second, 100}, 0, errStalled},
		"what is asked":               {drip{leastRate, time.Second, 100}, 0, nil},
		"little, and soon over":       {drip{1, 5 * time.Second, 5}, 0, nil},
		"a reader that takes it late": {drip{leastRate, time.Second, 100}, time.Minute, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			body := &watched{body: &c.body, ctx: ctx, cancel: cancel, stall: 30 * time.Second}
			buffer := make([]byte, 1<<20)
			var err error
			for err == nil {
				_, err = body.Read(buffer)
				time.Sleep(c.slack)
			}
			if c.err == nil {
				c.err = io.EOF
			}
			if err != c.err {
				t.Errorf("%s: %v", title, err)
			}
		})
	}
	if text := fromUpstream(errStalled, "r.io").Error(); !strings.Contains(text, "less than 16 KiB a second") {
		t.Error(text)
	}
}
