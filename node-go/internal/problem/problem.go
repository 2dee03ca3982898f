// Package problem is the error type of every boundary: a code of the contract, a sentence that names the value at
// fault, and further fields. Over gRPC it is sent in the details of the status.
package problem

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Code is a key of contract/errors.toml.
type Code string

// Problem is a failure that callers may see.
type Problem struct {
	Code    Code
	Detail  string
	Details map[string]string
	cause   error
}

// New makes a problem. Its detail is one sentence for people, formatted as fmt does; what %w wraps is its cause.
func New(code Code, format string, values ...any) *Problem {
	err := fmt.Errorf(format, values...)
	return &Problem{Code: code, Detail: err.Error(), cause: errors.Unwrap(err)}
}

// With adds a machine-readable field.
func (p *Problem) With(name, value string) *Problem {
	if p.Details == nil {
		p.Details = map[string]string{}
	}
	p.Details[name] = value
	return p
}

func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// Unwrap returns the cause, if there is one.
func (p *Problem) Unwrap() error { return p.cause }

// From returns the problem in an error's chain. Without one the error is the platform's (internal), except that a call
// whose time is over says so.
func From(err error) *Problem {
	var found *Problem
	switch {
	case errors.As(err, &found):
		return found
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return New(UpstreamTimeout, "%w", err)
	default:
		return New(Internal, "%w", err)
	}
}
