package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/segment"
)

// timedSource tells how long fetches take.
type timedSource struct {
	segment.Source

	metrics *metrics.Service
}

// Take implements segment.Source.
func (t timedSource) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	began := time.Now()
	got, err := t.Source.Take(ctx, tag, step)
	t.metrics.Fetched(time.Since(began), err)
	return got, err
}

// SegmentCounters is the configuration of the counters that every server takes a store's segments
// from: a kind of their own, whose margin exceeds many fetches.
func SegmentCounters(config counter.Config) counter.Config {
	config.Kind = "segment"
	config.Margin = max(config.Margin, 64*segment.DefaultMaxStep)
	return config
}

const maxListedTags = 10_000

func (s *Server) openSegments() {
	log := requestlog.Nameless(s.log)
	if s.source = s.config.SegmentSource; s.source == nil {
		counters := SegmentCounters(s.config.Counters)
		counters.Logger = log
		s.stored = &storeSource{counters: counter.New(s.store, counters), step: s.config.SegmentStep, known: s.config.KnownSegments}
		s.source, s.config.SegmentTags = s.stored, s.stored.tags
	}
	s.source = timedSource{s.source, s.metrics}
	config := s.config.Segments
	config.Logger, config.Owner = log, owner
	s.segments = segment.New(s.source, config)
}

func (s *Server) closeSegments() {
	s.segments.Close()
	if s.stored != nil {
		_ = s.stored.counters.Close() // it waits, and has no error
	}
}

// storeSource takes ranges from counters.
type storeSource struct {
	counters *counter.Counters
	step     int64
	known    bool     // only tags that are there
	seen     sync.Map // tags that were there
	ends     opaqueEnds
}

// Take implements segment.Source.
func (t *storeSource) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	if step == 0 {
		step = t.step
	}
	if err := t.there(ctx, tag); err != nil {
		return segment.Range{}, err
	}
	got, err := t.take(ctx, tag, min(step, counter.MaxBy))
	switch {
	case errors.Is(err, counter.ErrOverflow), err == nil && got.Value+1 < 0:
		return segment.Range{}, segment.ErrExhausted
	case err != nil:
		return segment.Range{}, err
	}
	return segment.Range{Lo: got.First, Hi: got.Value + 1, Step: t.step}, nil
}

// take adds to a tag's counter. After a loss the counter moves past all that may have been handed
// out. Where opaque ids of a tag would have no number left after the move it is held instead.
func (t *storeSource) take(ctx context.Context, tag string, by int64) (counter.Range, error) {
	if end := t.ends.of(tag); end != 0 {
		got, err := t.counters.Add(ctx, tag, counter.Request{By: by, Limit: end})
		if !errors.Is(err, counter.ErrLimit) {
			return got, err
		}
		// it has come there by itself, and ids of other formats have more room
	}
	return t.counters.IncrBy(ctx, tag, by)
}

// opaqueEnds are the largest ids that opaque numbers can stand for, by tag, as they were asked for
// last.
type opaqueEnds struct {
	mu   sync.Mutex
	tags map[string]int64
}

func (o *opaqueEnds) note(tag string, end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tags == nil || len(o.tags) >= segment.DefaultMaxTags {
		o.tags = map[string]int64{} // the next request for opaque ids of a tag brings it back
	}
	o.tags[tag] = end
}

// of returns 0 for a tag whose opaque ids were never asked for.
func (o *opaqueEnds) of(tag string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tags[tag]
}

// there refuses a tag that the store does not have, if the configuration says so. A tag seen once
// is not looked for again: if the store has lost it, the counter moves past all that may have been
// handed out.
func (t *storeSource) there(ctx context.Context, tag string) error {
	if _, seen := t.seen.Load(tag); seen || !t.known {
		return nil
	}
	_, err := t.counters.Get(ctx, tag)
	switch {
	case errors.Is(err, counter.ErrUnknown):
		return segment.ErrUnknownTag
	case err == nil:
		t.seen.Store(tag, nil)
	}
	return err
}

func (t *storeSource) tags(ctx context.Context) (tags []SegmentTag, err error) {
	for cursor, more := "", true; more && len(tags) < maxListedTags; more = cursor != "" {
		var page []counter.Listed
		if page, cursor, err = t.counters.List(ctx, "", cursor, maxCounters); err != nil {
			return nil, err
		}
		for _, one := range page {
			tags = append(tags, SegmentTag{Tag: one.Key, Max: one.Value + 1, Step: t.step})
		}
	}
	return tags, nil
}
