package segment

import (
	"context"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// DefaultStep is how many ids a [Source] takes at once if neither caller nor tag says.
const DefaultStep = 2000

// The refusals of a [Source]: nothing was taken.
var (
	// ErrUnknownTag means that the source has no such tag.
	ErrUnknownTag = fault.Refusal("segment: no such tag")
	// ErrExhausted means that the tag has no ids left below 2^63.
	ErrExhausted = fault.Refusal("segment: the tag has no ids left below 2^63")
)

// Range is the ids Lo, Lo+Delta, … below Hi. A Lo below 0 is refused with [ErrBadRange].
type Range struct {
	Lo, Hi int64 // half-open: [Lo, Hi)
	Delta  int64 // distance of two ids; 0 = 1
	Step   int64 // the least step that the source wants for this tag, in ids; 0 = it has no wish
}

// Source hands out ranges that no two calls share. It is safe for concurrent use.
type Source interface {
	// Take takes the next step ids of a tag: a count of ids, not a distance. With step 0 it takes
	// as many as the source wants for the tag: the tag's own step, else [DefaultStep]. It may give
	// fewer or more than asked.
	//
	// The error keeps the class of what went wrong ([redisstore.ErrRefused] or
	// [redisstore.ErrUnknownOutcome]). After an unknown outcome the ids may be taken: nothing asks
	// for the same ones again, and a gap is left.
	Take(ctx context.Context, tag string, step int64) (Range, error)
}
