package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/internal/step"
)

// DefaultStep is how many ids a [Source] takes at once if neither caller nor tag says.
const DefaultStep = 2000

// Range is the ids Lo, Lo+Delta, … below Hi. A Lo below 0 is refused with [ErrBadRange].
type Range struct {
	Lo, Hi int64 // half-open: [Lo, Hi)
	Delta  int64 // distance of two ids; 0 = 1
	Step   int64 // the least step that the source wants for this tag, in ids; 0 = it has no wish
	// Valid ends when the source learns that others may have had these ids: what is left of them is
	// dropped then. nil = no others have
	Valid context.Context
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

// Segments hands out ids of many tags from one source, until Close. It is safe for concurrent use.
//
// # A source that goes back
//
// A source may go back because it was restored from an old copy or lost what it had confirmed. A
// range that has an id at or below one that this process has seen is refused with [ErrWentBack] and
// counted, and ids are handed out again when the source is ahead of what was seen. What other
// processes have handed out is unknown here: move the source ahead of all ids that can be out
// before it serves again. Ranges with a distance are compared with those that have the same
// remainder, since those interleave: ids lo, lo+delta, … with all ranges whose ids could meet
// them, were both continued for ever. This is known of the tags in use and as many dropped ones.
//
// # Step
//
// The step is how many ids a fetch asks for. It follows the demand so that a range lasts for
// [Config].Period. The first fetch asks for what the source wants to give, the second for the same,
// and from then on it changes with each by a factor of 2 at most; never below the least step of the
// source, and never above [Config].MaxStep. Doubling stops where twice would be more than that. It
// grows as soon as a fetch comes sooner than it should, doubles when the callers found no id, and
// falls when a whole period has shown less demand. If it may not grow and callers still find no id,
// up to eight ranges are kept ready, until a period has passed without that.
type Segments struct {
	source Source
	config Config
	ctx    context.Context // of all Takes; ends with Close
	cancel context.CancelFunc
	// a job starts while its chain's mutex is held and the chain is in use: never after Close
	jobs   sync.WaitGroup
	totals totals

	mu     sync.RWMutex
	closed bool
	chains map[string]*chain
	known  int               // chains that have had a range
	places share.Places      // of those, by owner
	seen   map[string]fences // of tags that were dropped, or are here again
	full   time.Time         // with MaxTags in use none can make room before that
	sweep  *time.Timer       // nil = no tag is known
}

// New makes Segments, and asks for nothing yet. It panics without a source or for a faulty config.
func New(source Source, config Config) *Segments {
	if source == nil {
		panic(errors.New("segment: there is no source"))
	}
	config = config.withDefaults()
	if err := config.Check(); err != nil {
		panic(err)
	}
	s := &Segments{source: source, config: config, chains: map[string]*chain{}, seen: map[string]fences{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends the Segments, and those calls that wait: they fail with [ErrClosed], as later ones do.
// The rest of the ranges is lost. It cancels Takes that are under way, and returns when the source
// has ended them. Closing again does nothing.
func (s *Segments) Close() {
	s.mu.Lock()
	s.closed = true
	if s.sweep != nil {
		s.sweep.Stop()
	}
	for _, c := range s.chains {
		c.mu.Lock()
		c.endLocked()
		c.mu.Unlock()
	}
	clear(s.chains)
	s.known, s.places = 0, share.Places{}
	s.mu.Unlock()
	step.At("segment: closed")
	s.cancel()
	s.jobs.Wait()
}

// Tag returns the handle of a tag. It fetches the tag's first range if there is none, waits for it,
// and fails as [Tag.Next] does; with [ErrInvalid] if the name is not 1 to 200 characters of A–Z a–z
// 0–9 . _ : ~ @ -.
func (s *Segments) Tag(ctx context.Context, name string) (*Tag, error) {
	c, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := c.tag.following(ctx, nil); err != nil {
		return nil, err
	}
	return c.tag, nil
}

// Next draws an id of a tag, as [Tag.Next] does; the lookup takes a few times as long as the draw.
func (s *Segments) Next(ctx context.Context, tag string) (int64, error) {
	c, err := s.open(ctx, tag)
	if err != nil {
		return 0, err
	}
	return c.tag.Next(ctx)
}

// Fill draws as many ids of a tag as there is room for, as [Tag.NextN] does.
func (s *Segments) Fill(ctx context.Context, tag string, ids []int64) error {
	c, err := s.open(ctx, tag)
	if err != nil {
		return err
	}
	return c.tag.Fill(ctx, ids)
}

// open finds a tag's chain, or makes one.
func (s *Segments) open(ctx context.Context, name string) (*chain, error) {
	s.mu.RLock()
	c := s.chains[name]
	s.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	if !names.Valid(name) {
		return nil, fmt.Errorf("%w: tag: %s", ErrInvalid, names.Rule)
	}
	owner := s.config.Owner(ctx)
	step.At("segment: the tag is not in use")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(name, owner)
}

// openLocked makes a chain unless there is one by now, or too many. Tags without a range from the
// source displace no other: their names may be made up.
func (s *Segments) openLocked(name, owner string) (*chain, error) {
	c := s.chains[name]
	switch {
	case s.closed:
		return nil, ErrClosed
	case c != nil:
		return c, nil
	case len(s.chains)-s.known >= s.config.MaxTags, s.known >= s.config.MaxTags && !s.hopefulLocked(owner):
		return nil, s.fullLocked()
	}
	c = newChain(s, name, owner, slices.Clone(s.seen[name]))
	s.chains[name] = c
	return c, nil
}

// hopefulLocked reports whether another tag of an owner may find a place although all are taken.
func (s *Segments) hopefulLocked(owner string) bool {
	_, yields := s.places.Yields(owner)
	return yields || !time.Now().Before(s.full)
}

// fullLocked refuses another tag until one can make room.
func (s *Segments) fullLocked() error {
	return &fault.WaitError{
		Err: ErrTooManyTags, Wait: max(time.Until(s.full).Round(time.Second), time.Second),
		Text: fmt.Sprintf(": %d; an unused one makes room in {wait} at the earliest", s.config.MaxTags),
	}
}
