package images

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	events "github.com/containerd/containerd/api/services/events/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
)

// After this time the events are asked for again.
const again = 5 * time.Second

// Use is when images were last used, as far as this process has seen: containerd keeps no such record.
type Use struct {
	now   func() time.Time
	mutex sync.Mutex
	seen  map[string]int64
}

// NewUse returns an empty record.
func NewUse() *Use { return &Use{now: time.Now, seen: map[string]int64{}} }

// Follow records every container that is made, and has it judged who has brought its image, until the context ends. It
// hears of those between two of its connections only as long as they exist.
func (u *Use) Follow(ctx context.Context, runtime *containerd.Runtime, brought *PullMarks, log *slog.Logger) {
	for ctx.Err() == nil {
		brought.forget()
		if err := u.follow(ctx, runtime, brought); ctx.Err() == nil {
			log.Warn("containerd's events broke off", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

func (u *Use) follow(ctx context.Context, runtime *containerd.Runtime, brought *PullMarks) error {
	stream, err := runtime.Events.Subscribe(ctx, &events.SubscribeRequest{
		Filters: []string{
			`topic=="/containers/create",namespace=="k8s.io"`,
			`topic=="/images/delete",namespace=="k8s.io"`,
		},
	})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		var made apievents.ContainerCreate
		if event.GetEvent().MessageIs(&made) && event.GetEvent().UnmarshalTo(&made) == nil {
			u.record(made.GetImage())
			brought.used(ctx, made.GetID(), made.GetImage())
		}
		if event.GetTopic() == "/images/delete" {
			brought.forget()
		}
	}
}

func (u *Use) record(name string) {
	if name == "" {
		return
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if len(u.seen) >= maxRemembered {
		clear(u.seen)
	}
	u.seen[name] = u.now().UnixMilli()
}

// last returns when an image was last used by any of its names; 0: not seen.
func (u *Use) last(one *cri.Image) int64 {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	var found int64
	for _, name := range names(one) {
		found = max(found, u.seen[name])
	}
	return found
}
