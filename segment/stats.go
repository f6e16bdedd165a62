package segment

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Stats is the state of one tag at one moment.
type Stats struct {
	Tag         string
	Initialised bool // there was a range; until then its first is being fetched
	Ready       int  // ranges that are ready after the current one
	Current     Part
	Next        Part  // zero unless Ready is above 0
	Step        int64 // asked for last; 0 = none yet
	LeastStep   int64 // as the source asks; 0 = it has no wish
	Fetches     int64 // that brought a range
	Failures    int64 // fetches that brought none
	Starved     int64 // see Totals
	WentBack    int64 // ranges that were refused as [ErrWentBack]
}

// Part is the rest of a range.
type Part struct {
	Pos   int64 // the id that is drawn next; Max where none is left
	Max   int64 // the range's Hi: no id reaches it
	Step  int64 // how many ids the range has
	Delta int64 // the distance of two ids
}

// Totals are sums over all tags since New, dropped ones too. All but Tags only grow.
type Totals struct {
	Tags     int   // in use now
	Fetches  int64 // that brought a range
	Failures int64 // fetches that brought none
	// times that callers found no id of a tag: once until a range came, however many waited
	Starved  int64
	WentBack int64 // ranges that were refused as [ErrWentBack]
	LetGo    int64 // unused tags that were dropped
}

type counts struct{ fetches, failures, starved, wentBack int64 }

type totals struct{ fetches, failures, starved, wentBack, letGo atomic.Int64 }

// Totals are for metrics.
func (s *Segments) Totals() Totals {
	s.mu.RLock()
	tags := s.known
	s.mu.RUnlock()
	t := &s.totals
	return Totals{tags, t.fetches.Load(), t.failures.Load(), t.starved.Load(), t.wentBack.Load(), t.letGo.Load()}
}

// Stats describes the tags in use, sorted by name.
func (s *Segments) Stats() []Stats {
	s.mu.RLock()
	all := make([]*chain, 0, len(s.chains))
	for _, c := range s.chains {
		all = append(all, c)
	}
	s.mu.RUnlock()
	stats := make([]Stats, len(all))
	for i, c := range all {
		stats[i] = c.stats()
	}
	slices.SortFunc(stats, func(a, b Stats) int { return cmp.Compare(a.Tag, b.Tag) })
	return stats
}

func (c *chain) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := Stats{
		Tag: c.name, Initialised: c.known, Ready: len(c.ahead), Step: c.pace.step, LeastStep: c.pace.least,
		Fetches: c.counts.fetches, Failures: c.counts.failures, Starved: c.counts.starved, WentBack: c.counts.wentBack,
	}
	if c.known {
		stats.Current = c.current.part()
	}
	if len(c.ahead) > 0 {
		stats.Next = c.ahead[0].part()
	}
	return stats
}

func (n *node) part() Part {
	part := Part{Pos: n.hi, Max: n.hi, Step: n.count, Delta: n.delta}
	if left := n.left(); left > 0 {
		part.Pos = n.id(1 - left)
	}
	return part
}
