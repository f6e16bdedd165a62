package stamper

import "time"

// closeLocked gives a pool back in the background, and its place at once.
func (s *Stamper) closeLocked(d *poolStamper) {
	delete(s.stampers, d.pool)
	if !s.keeps(d.pool) {
		s.places.Free(d.owner)
	}
	s.work.Go(func() { d.giveBack(s.life) })
}

// makeRoomLocked closes a pool for one that an owner wants to open, and reports whether it did: the
// pool that has rested for longest, and long enough to be spare, of an owner with at least as many;
// else one of the owner with the most, though it may be in use: its calls are asked to come again.
func (s *Stamper) makeRoomLocked(owner string) bool {
	mine := s.places.Of(owner)
	if d := s.longestLocked(func(d *poolStamper) bool { return s.places.Of(d.owner) >= mine }); d != nil && d.users == 0 &&
		time.Since(d.used) >= s.config.Spare {
		s.closeLocked(d)
		return true
	}
	from, yields := s.places.Yields(owner)
	if !yields {
		return false
	}
	if d := s.longestLocked(func(d *poolStamper) bool { return d.owner == from }); d != nil {
		s.closeLocked(d)
		return true
	}
	return false
}

// longestLocked returns the pool, of some, that is not in use and has rested for longest; if all
// are in use, the one that was left least lately. It is nil if all are kept.
func (s *Stamper) longestLocked(among func(*poolStamper) bool) (longest *poolStamper) {
	for _, d := range s.stampers {
		if !s.keeps(d.pool) && among(d) && (longest == nil || d.restsBefore(longest)) {
			longest = d
		}
	}
	return longest
}

// restsBefore reports whether a pool is to be given back before another. Their users and times are
// the Stamper's, whose mutex is held.
func (d *poolStamper) restsBefore(other *poolStamper) bool {
	if (d.users == 0) != (other.users == 0) {
		return d.users == 0
	}
	return d.used.Before(other.used)
}

// nextRoomLocked is when the first pool makes room for another, if no call uses it from now on.
func (s *Stamper) nextRoomLocked() time.Duration {
	rested := time.Duration(0)
	for pool, d := range s.stampers {
		if !s.keeps(pool) && d.users == 0 {
			rested = max(rested, time.Since(d.used))
		}
	}
	return max(s.config.Spare-rested, s.config.Spare/10)
}
