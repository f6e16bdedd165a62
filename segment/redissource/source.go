// Package redissource takes ranges of ids from counters in Redis, as a [segment.Source].
//
// Each range is given to one caller, for as long as Redis keeps what it has confirmed. After a
// loss, or a restart after which something may have been lost, a tag moves by the margin (64 of the
// largest ranges at least), past everything that can have been handed out; package counter says
// when and how. A tag needs no making.
package redissource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// ErrPast refuses to have a tag go on at an id that may have been handed out. Nothing was changed.
var ErrPast = fault.Refusal("redissource: the tag has gone on further")

// DefaultStep is the default of [Config].Step.
const DefaultStep = 1000

// Config is what the tags of a store share. The zero value of each field means its documented
// default. It must be the same in all processes that use the same tags.
type Config struct {
	Counters counter.Config // of the tags, which are counters of their own kind: see [Counters]
	Step     int64          // ids of a range at least, 1 to counter.MaxBy; 0 = DefaultStep
	// KnownOnly refuses absent tags with segment.ErrNotFound; without it they begin at 1.
	KnownOnly bool
}

// Counters returns the configuration of the counters that tags are: of a kind of their own, and
// with a margin beyond what many fetches take.
func Counters(config counter.Config) counter.Config {
	config.Kind = "segment"
	config.Margin = max(config.Margin, 64*segment.DefaultMaxStep)
	return config
}

// Source is the tags of a store. Its methods may be called by several goroutines.
type Source struct {
	counters *counter.Counters
	step     int64
	known    bool
	seen     sync.Map // tags that were there
	ends     ends
}

var _ segment.Source = (*Source)(nil)

// New returns the tags of a store. It does not ask Redis. It panics if the configuration of the
// counters is none ([counter.Config.Check]).
func New(store *redisstore.Store, config Config) *Source {
	return &Source{counters: counter.New(store, Counters(config.Counters)), step: cmp.Or(config.Step, DefaultStep), known: config.KnownOnly}
}

// Close ends what the source does in the background. It waits, and always returns nil.
func (s *Source) Close() error { return s.counters.Close() }

// Take implements [segment.Source]. Its errors are those of [counter.Counters.Add], with
// segment.ErrExhausted at the end of the numbers, and segment.ErrNotFound under KnownOnly.
func (s *Source) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	if err := s.there(ctx, tag); err != nil {
		return segment.Range{}, err
	}
	valid := s.counters.Unproven(tag)
	got, err := s.take(ctx, tag, min(cmp.Or(step, s.step), counter.MaxBy))
	switch {
	case errors.Is(err, counter.ErrOverflow), err == nil && got.Last+1 < 0:
		return segment.Range{}, segment.ErrExhausted
	case err != nil:
		return segment.Range{}, err
	}
	return segment.Range{Lo: got.First, Hi: got.Last + 1, Step: s.step, Valid: valid}, nil
}

// take adds to a tag's counter, and does not move one past its end.
func (s *Source) take(ctx context.Context, tag string, by int64) (counter.Range, error) {
	if end := s.ends.of(tag); end != 0 {
		got, err := s.counters.Add(ctx, tag, counter.Request{By: by, Limit: end})
		if !errors.Is(err, counter.ErrLimit) {
			return got, err
		}
		// it has come there by itself, and other uses of its ids have more room
	}
	return s.counters.IncrBy(ctx, tag, by)
}

// there refuses a tag that the store does not have, if that is asked for. One that was seen is not
// looked for again: after a loss the counter moves past all that can be out.
func (s *Source) there(ctx context.Context, tag string) error {
	if _, seen := s.seen.Load(tag); seen || !s.known {
		return nil
	}
	_, err := s.counters.Get(ctx, tag)
	switch {
	case errors.Is(err, counter.ErrNotFound):
		return segment.ErrNotFound
	case err == nil:
		s.seen.Store(tag, nil)
	}
	return err
}

// HoldAt says that ids of a tag beyond end are of no use, as those of a number with few digits.
// Where the tag would have to move past end after a loss, it is held instead: Take returns
// [counter.ErrBehind] until [Source.SetNext]. A tag that comes to its end by itself goes on. This
// process remembers it for segment.DefaultMaxTags tags.
func (s *Source) HoldAt(tag string, end int64) { s.ends.note(tag, end) }

// SetNext has a tag go on at the id next, 1 or more: the way out of [counter.ErrBehind]. It goes
// forward only: [ErrPast] where Redis knows of larger ids. Ranges fetched ahead stay in use.
func (s *Source) SetNext(ctx context.Context, tag string, next int64) error {
	if next < 1 {
		return fmt.Errorf("%w: next %d: 1 or more", counter.ErrInvalid, next)
	}
	err := s.counters.Set(ctx, tag, next-1, counter.SetOptions{})
	if errors.Is(err, counter.ErrPast) {
		return fmt.Errorf("%w: %w", ErrPast, err)
	}
	return err
}

// Tag is a tag of a list.
type Tag struct {
	Name string
	Next int64 // ids below it are handed out, or fetched ahead
	Step int64 // how many ids a range has at least
}

// Tags lists the tags that were used, up to n, in the order of their names.
func (s *Source) Tags(ctx context.Context, n int) (tags []Tag, err error) {
	const page = 1000
	for after, more := "", true; more && len(tags) < n; more = after != "" {
		var found []counter.Listed
		if found, after, err = s.counters.List(ctx, "", after, min(page, n-len(tags))); err != nil {
			return nil, err
		}
		for _, one := range found {
			tags = append(tags, Tag{one.Key, one.Value + 1, s.step})
		}
	}
	return tags, nil
}

// Totals is how often tags have moved since the process began.
func (s *Source) Totals() counter.Totals { return s.counters.Totals() }

// ends are the last ids of use, by tag.
type ends struct {
	mu   sync.Mutex
	tags map[string]int64
}

func (e *ends) note(tag string, end int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tags == nil || len(e.tags) >= segment.DefaultMaxTags {
		e.tags = map[string]int64{} // the next call for a tag brings it back
	}
	e.tags[tag] = end
}

// of returns 0 for a tag without an end.
func (e *ends) of(tag string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tags[tag]
}
