// Package supervisor has services of a node started, ended and started anew, by whatever keeps them running there.
package supervisor

import "context"

// Service is one service: its name, and the socket on which it answers.
type Service struct{ Name, Socket string }

// Supervisor keeps services running.
type Supervisor interface {
	// Restart ends a service and returns when it answers again.
	Restart(ctx context.Context, service Service) error
	// Provide has a service run with what its program and its settings are now, and at every start of the node.
	Provide(ctx context.Context, service Service) error
	// Withdraw ends a service for good; success if there is none.
	Withdraw(ctx context.Context, service Service) error
	// Running tells whether it runs.
	Running(ctx context.Context, service Service) (bool, error)
}
