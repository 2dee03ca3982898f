package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"rollbox.dev/node/internal/convert"
	"rollbox.dev/node/internal/distribution"
	"rollbox.dev/node/internal/problem"
)

// unreadable is content of an upstream registry that broke off, has another digest, or more bytes than it should.
type unreadable struct {
	cause error
}

func (u *unreadable) Error() string { return u.cause.Error() }
func (u *unreadable) Unwrap() error { return u.cause }

// fromUpstream returns the problem that an upstream registry's failure is.
func fromUpstream(err error, registry string) error {
	var known *problem.Problem
	var answered *transport.Error
	var broken *unreadable
	make := func(code problem.Code, outcome, format string, values ...any) error {
		detail := fmt.Errorf("registry "+registry+": "+format, values...)
		return problem.New(code, "%w", detail).With("side", "upstream").With("registry", registry).With("outcome", outcome)
	}
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errStalled):
		return make(problem.ImagePullFailed, "away", "it stopped sending, or sends less than %d KiB a second", leastRate>>10)
	case errors.Is(err, errForbidden):
		return make(problem.ImagePullFailed, "away", "it is not asked: %w", err)
	case errors.As(err, &broken):
		return make(problem.ImagePullFailed, "broken", "what it sent is not what it should be: %w", err)
	case !errors.As(err, &answered):
		return make(problem.ImagePullFailed, "away", "it cannot be reached, or broke off: %w", err)
	}
	switch answered.StatusCode {
	case http.StatusNotFound:
		return make(problem.ImageNotFound, "absent", "it does not have the image, or does not show it to us")
	case http.StatusUnauthorized, http.StatusForbidden:
		return make(problem.ImageNotFound, "denied", "it refuses our credentials for the image")
	case http.StatusTooManyRequests:
		return make(problem.ImagePullFailed, "limited", "it limits how often it is asked")
	}
	return make(problem.ImagePullFailed, "away", "it answers %d", answered.StatusCode)
}

// fromRegistry returns the problem that a failure of the private registry is.
func fromRegistry(err error, registry string) error {
	var known *problem.Problem
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if distribution.Full(err) {
		return full(registry, "%w", err)
	}
	outcome := "away"
	var answered *transport.Error
	if errors.As(err, &answered) && (answered.StatusCode == http.StatusUnauthorized || answered.StatusCode == http.StatusForbidden) {
		outcome = "denied"
	}
	detail := fmt.Errorf("the private registry %s does not take the image, or give it: %w", registry, err)
	return problem.New(problem.ImagePullFailed, "%w", detail).With("side", "registry").With("registry", registry).With("outcome", outcome)
}

// full returns the problem that a private registry without room is.
func full(registry, format string, values ...any) error {
	detail := fmt.Errorf("the private registry "+registry+" is full: "+format, values...)
	return problem.New(problem.ImageStoreFull, "%w", detail).With("side", "registry").With("registry", registry).With("outcome", "full")
}

// fromConversion returns the problem that a failed conversion is: the image's, the disk's, or of the private registry,
// which its layers are read from.
func fromConversion(err error, registry string) error {
	var refused *convert.RefusedError
	switch {
	case errors.As(err, &refused):
		return problem.New(problem.Unsupported, "the image is not converted: %w", err).With("option", "pull")
	case errors.Is(err, syscall.ENOSPC):
		return problem.New(problem.CapacityUnavailable, "the mirror's disk is full: %w", err)
	}
	return fromRegistry(err, registry)
}

// absent reports whether a registry has said that it does not have something.
func absent(err error) bool {
	var answered *transport.Error
	return errors.As(err, &answered) && answered.StatusCode == http.StatusNotFound
}

// denied reports whether an upstream registry has refused the credentials of a call.
func denied(err error) bool {
	found := problem.From(err)
	return found.Code == problem.ImageNotFound
}

// answeredOrUnreachable reports whether an error is a registry's refusal or a connection's, not one of what was read.
func answeredOrUnreachable(err error) bool {
	var answered *transport.Error
	var connection *url.Error
	return errors.As(err, &answered) || errors.As(err, &connection) || errors.Is(err, errStalled)
}
