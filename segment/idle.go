package segment

import (
	"errors"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// dropped is a dropped tag, for the log.
type dropped struct {
	tag    string
	unused time.Duration
	lost   float64 // ids
}

func (s *Segments) report(all []dropped) {
	for _, one := range all {
		s.config.Logger.Info("segment: let an idle tag go", "tag", one.tag, "unused", one.unused, "ids_lost", one.lost)
	}
}

// admit counts a chain among those that are in use, when the source gives it the first range. The
// tag that was unused for longest makes room, or one of the owner that has the most.
func (s *Segments) admit(c *chain) error {
	var gone []dropped
	defer func() { s.report(gone) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.known || s.closed {
		// known is changed by this goroutine only; settle wakes the waiters
		return nil
	}
	if s.known >= s.config.MaxTags {
		if gone = s.makeRoomLocked(c.owner); gone == nil {
			return s.fullLocked()
		}
	}
	c.mu.Lock()
	c.known = true
	c.mu.Unlock()
	s.known++
	s.places.Take(c.owner)
	if s.known == s.config.MaxTags {
		s.longestLocked(time.Now(), nil)
	}
	if s.sweep == nil {
		s.sweep = time.AfterFunc(s.config.spare()/4, s.sweepOut)
	}
	return nil
}

// makeRoomLocked drops the tag that was unused for longest, if that is long enough. If not, the
// owner of the most tags loses its least recently used one, for an owner with fewer.
func (s *Segments) makeRoomLocked(owner string) []dropped {
	now := time.Now()
	if longest := s.longestLocked(now, nil); longest != nil {
		if gone := s.letGoLocked(longest, now, s.config.spare()); gone != nil {
			return gone
		}
	}
	from, yields := s.places.Yields(owner)
	if !yields {
		return nil
	}
	if longest := s.longestLocked(now, func(c *chain) bool { return c.owner == from }); longest != nil {
		return s.letGoLocked(longest, now, 0)
	}
	return nil
}

// longestLocked finds the chain that was unused for longest, of those that can be dropped and are
// among some, nil for all. It records when one can make room at the earliest.
func (s *Segments) longestLocked(now time.Time, among func(*chain) bool) (longest *chain) {
	oldest, oldestFree := now, now
	for _, c := range s.chains {
		at, known, free := c.lastUse(now)
		if known && at.Before(oldest) {
			oldest = at
		}
		if free && (longest == nil || at.Before(oldestFree)) && (among == nil || among(c)) {
			longest, oldestFree = c, at
		}
	}
	s.full = oldest.Add(s.config.spare())
	return longest
}

// sweepOut drops tags unused for too long. A draw records no time: frequent sweeps see it better.
func (s *Segments) sweepOut() {
	var gone []dropped
	defer func() { s.report(gone) }()
	step.At("segment: is about to sweep")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := time.Now()
	for _, c := range s.chains {
		if at, _, free := c.lastUse(now); free && now.Sub(at) >= s.config.Idle {
			gone = append(gone, s.letGoLocked(c, now, s.config.Idle)...)
		}
	}
	s.sweep = nil
	if s.known > 0 {
		s.sweep = time.AfterFunc(s.config.spare()/4, s.sweepOut)
	}
}

// lastUse is when a chain was used last, whether it has had a range, and whether it has and nothing
// of it is under way. The time can be too late, while nothing observed it, but never too early.
func (c *chain) lastUse(now time.Time) (used time.Time, known, free bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if drawn := c.drawnLocked(); drawn != c.use.drawn {
		c.use.drawn, c.use.at = drawn, now
	}
	return c.use.at, c.known, c.known && c.attempt == nil
}

// letGoLocked drops a chain that was unused for that long and has no attempt under way.
func (s *Segments) letGoLocked(c *chain, now time.Time, unused time.Duration) []dropped {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attempt != nil || now.Sub(c.use.at) < unused || c.drawnLocked() != c.use.drawn {
		return nil
	}
	lost := c.endLocked()
	s.forgetLocked(c)
	s.totals.letGo.Add(1)
	return []dropped{{c.name, now.Sub(c.use.at), lost}}
}

// discard forgets a chain without ids whose attempt failed: its tag is not there or gave nothing.
func (s *Segments) discard(c *chain, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.attempt != nil || c.leftLocked() > 0 || c.known && !errors.Is(err, ErrNotFound) {
		return
	}
	c.endLocked()
	s.forgetLocked(c)
}

// forgetLocked takes a chain that has ended off the list, with its own mutex held too. The ids seen
// of the tag are kept, of as many tags as may be in use.
func (s *Segments) forgetLocked(c *chain) {
	delete(s.chains, c.name)
	if c.known {
		s.known--
		s.places.Free(c.owner)
	}
	if len(c.fences) == 0 {
		return
	}
	if _, kept := s.seen[c.name]; !kept && len(s.seen) >= s.config.MaxTags {
		for name := range s.seen {
			delete(s.seen, name)
			break
		}
	}
	s.seen[c.name] = c.fences
}
