package server

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// timedSource tells how long fetches take.
type timedSource struct {
	segment.Source

	metrics *metrics.Service
}

func (t timedSource) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	began := time.Now()
	got, err := t.Source.Take(ctx, tag, step)
	t.metrics.Fetched(time.Since(began), err)
	return got, err
}

const maxListedTags = 10_000

func (s *Server) openSegments() {
	log := requestlog.Nameless(s.log)
	if s.source = s.config.SegmentSource; s.source == nil {
		s.stored = redissource.New(s.store, redissource.Config{Counters: s.config.Counters, Step: s.config.SegmentStep,
			KnownOnly: s.config.KnownSegments})
		s.source, s.config.SegmentTags = s.stored, s.storedTags
	}
	s.source = timedSource{s.source, s.metrics}
	config := s.config.Segments
	config.Logger, config.Owner = log, owner
	s.segments = segment.New(s.source, config)
}

func (s *Server) closeSegments() {
	s.segments.Close()
	if s.stored != nil {
		_ = s.stored.Close() // it waits, and has no error
	}
}

func (s *Server) storedTags(ctx context.Context) (tags []SegmentTag, err error) {
	found, err := s.stored.Tags(ctx, maxListedTags)
	for _, tag := range found {
		tags = append(tags, SegmentTag{Tag: tag.Name, Max: tag.Next, Step: tag.Step})
	}
	return tags, err
}
