package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
)

// openedSegments is the source of ranges. The zero value is the store.
type openedSegments struct {
	source segment.Source
	tags   func(context.Context) ([]server.SegmentTag, error)
	close  func() error
}

// openSegments opens the source of --segment-source.
func openSegments(c *config.Service) (openedSegments, error) {
	if c.SegmentSource == config.SegmentsFromRedis {
		return openedSegments{close: func() error { return nil }}, nil
	}
	db, dialect, err := openSQL(c.SegmentSource)
	if err != nil {
		return openedSegments{}, fmt.Errorf("segment-source: %w", err)
	}
	if c.SegmentTable == segment.DefaultSequenceTable {
		return openedSegments{source: segment.NewSequence(db, dialect, segment.SequenceConfig{}), close: db.Close}, nil
	}
	leaf := segment.NewLeafAlloc(db, dialect, segment.LeafConfig{})
	return openedSegments{source: leaf, tags: func(ctx context.Context) ([]server.SegmentTag, error) { return leafTags(ctx, leaf) },
		close: db.Close}, nil
}

// leafTags are the rows of the table for Leaf's pages.
func leafTags(ctx context.Context, leaf *segment.LeafAlloc) (tags []server.SegmentTag, err error) {
	rows, err := leaf.Tags(ctx)
	for _, row := range rows {
		tags = append(tags, server.SegmentTag{Tag: row.Tag, Max: row.MaxID, Step: row.Step, Updated: row.Updated.Format(time.DateTime)})
	}
	return tags, err
}
