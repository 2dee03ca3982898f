package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"rollbox.dev/node/internal/broken"
	"rollbox.dev/node/internal/wire"
)

// The images with broken layers are looked for again after this time, since some come and go.
const brokenHolds = time.Minute

// brokenImages tells which images have layers that could not be read.
type brokenImages struct {
	mutex  sync.Mutex
	layers map[string]string
	found  []*wire.Broken
	until  time.Time
}

func (s *service) whatIsBroken(ctx context.Context) []*wire.Broken {
	if s.settings.Mounts == "" {
		return nil
	}
	layers := broken.Read(s.settings.Mounts)
	s.broken.mutex.Lock()
	defer s.broken.mutex.Unlock()
	if maps.Equal(layers, s.broken.layers) && time.Now().Before(s.broken.until) {
		return s.broken.found
	}
	var told []*wire.Broken
	if len(layers) > 0 {
		images, err := s.store.Broken(ctx, layers)
		if err != nil {
			s.log.Warn("images of broken layers not found", "error", err)
			return s.broken.found
		}
		for _, digest := range slices.Sorted(maps.Keys(images)) {
			told = append(told, &wire.Broken{Digest: digest, Why: images[digest]})
		}
	}
	s.broken.layers, s.broken.found, s.broken.until = layers, told, time.Now().Add(brokenHolds)
	return told
}
