package mirror

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"rollbox.dev/node/internal/avoid"
)

const (
	// What a registry that tells no time is given, doubled with each answer.
	firstPause = time.Second
	// A registry that asks for more is not waited for: the caller is told.
	longestPause = 2 * time.Minute
	mostPauses   = 8
	mostHosts    = 1024
)

// RetryAfter asks again what a registry refuses because it was asked too often (429, or 503 with Retry-After). All copies
// wait for the same registry together, so a pause is not broken by the next one. Only requests without a body go through
// it.
type RetryAfter struct {
	next http.RoundTripper
	now  func() time.Time

	hosts *avoid.Until
}

// NewRetryAfter wraps a transport.
func NewRetryAfter(next http.RoundTripper) *RetryAfter {
	return &RetryAfter{next: next, now: time.Now, hosts: avoid.New(mostHosts, time.Now)}
}

// RoundTrip sends a request, perhaps several times.
func (p *RetryAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		if err := p.wait(request.Context(), request.URL.Host); err != nil {
			return nil, err
		}
		response, err := p.next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		pause, limited := asked(response, attempt, p.now())
		if !limited || pause > longestPause || attempt == mostPauses || request.Body != nil {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
		_ = response.Body.Close()
		p.hosts.Set(request.URL.Host, p.now().Add(pause))
	}
}

func (p *RetryAfter) wait(ctx context.Context, host string) error {
	left := p.hosts.Left(host)
	if left == 0 {
		return nil
	}
	heard, _ := ctx.Value(pausesKey{}).(*pauses)
	if heard != nil {
		heard.begin(p.now().Add(left))
	}
	select {
	case <-time.After(left):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if heard != nil {
		return heard.end(ctx)
	}
	return nil
}

// asked returns for how long an answer asks for a pause.
func asked(response *http.Response, attempt int, now time.Time) (time.Duration, bool) {
	header := response.Header.Get("Retry-After")
	switch {
	case response.StatusCode == http.StatusServiceUnavailable && header != "":
	case response.StatusCode == http.StatusTooManyRequests:
	default:
		return 0, false
	}
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 {
		return min(time.Duration(seconds), 24*3600) * time.Second, true
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now)), true
	}
	return firstPause << min(attempt, 6), true
}

type pausesKey struct{}

// pauses is how a copy hears for how long a registry makes it wait; end returns when the copy may go on.
type pauses struct {
	begin func(until time.Time)
	end   func(ctx context.Context) error
}

func withPauses(ctx context.Context, heard *pauses) context.Context {
	return context.WithValue(ctx, pausesKey{}, heard)
}
