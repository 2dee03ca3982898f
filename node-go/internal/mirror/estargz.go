package mirror

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"rollbox.dev/node/internal/convert"
)

// ESTARGZ makes images whose layers can be mounted while they are fetched, within so much memory and room in its folder.
func ESTARGZ(memory, room int64) Converter {
	limits := convert.LimitsFor(memory).Within(room)
	return func(
		ctx context.Context, image v1.Image, folder string, first []string, done func(), worked func(int64),
	) (v1.Image, error) {
		how := convert.Options{Folder: folder, First: first, Done: done, Worked: worked, Limits: limits}
		return convert.Image(ctx, image, how)
	}
}
