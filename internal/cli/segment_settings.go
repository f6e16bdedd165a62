package cli

import (
	"context"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for /incr, where the machine has no time zones

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
)

const segmentsFromRedis = "redis"

// segmentSource is where the ranges of /id/segment come from.
func segmentSource(into *string) *setting {
	help := "where the ranges of /id/segment come from: redis, which is counters of the store, or a database with a leaf_alloc table: mysql:// | postgres://"
	redact := func(s string) string {
		if s == segmentsFromRedis {
			return s
		}
		return redactSQL(s)
	}
	return &setting{name: "segment-source", value: segmentsFromRedis, unit: "redis or URL", help: help, redact: redact, parse: func(s string) error {
		*into = s
		if s == segmentsFromRedis {
			return nil
		}
		if _, _, err := parseSQL(s); err != nil {
			return fmt.Errorf("neither redis nor a database: %w", err)
		}
		return nil
	}}
}

// leafModes says which modes of the door for Leaf's clients are on.
func leafModes(into *server.LeafDoor) *setting {
	help := "modes of the door for clients of Leaf that are on; one that is off answers 0; empty: both are off"
	return &setting{name: "leaf", value: "segment,snowflake", unit: "mode,…", help: help, parse: func(s string) error {
		into.NoSegment, into.NoSnowflake = true, true
		if s == "" {
			return nil
		}
		for mode := range strings.SplitSeq(s, ",") {
			switch strings.TrimSpace(mode) {
			case "segment":
				into.NoSegment = false
			case "snowflake":
				into.NoSnowflake = false
			default:
				return fmt.Errorf("%q is not a mode: segment, snowflake, or both with a comma between them", mode)
			}
		}
		return nil
	}}
}

// tinyidTokens is which tokens the door for tinyid's clients takes, of which only the tags are ever
// shown.
func tinyidTokens(into *[]server.TinyidToken) *setting {
	tags := func(value string) string {
		tokens, err := parseTinyid(value)
		if err != nil {
			return "(not tokens)"
		}
		var shown []string
		for _, token := range tokens {
			shown = append(shown, token.BizType+"=…")
		}
		return strings.Join(shown, ",")
	}
	help := "tokens of the API for clients of tinyid: each gives ids of its tag; a tag may have several; none: the door answers all that the token is wrong"
	return &setting{name: "tinyid-tokens", unit: "tag=token,…", help: help, redact: tags, parse: func(s string) (err error) {
		*into, err = parseTinyid(s)
		return err
	}}
}

func parseTinyid(text string) (tokens []server.TinyidToken, err error) {
	if text == "" {
		return nil, nil
	}
	for i, part := range strings.Split(text, ",") {
		tag, token, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !names.Valid(tag) || token == "" {
			return nil, fmt.Errorf("token %d: tag=token, the tag a name, the token at least one character and no comma", i+1)
		}
		tokens = append(tokens, server.TinyidToken{BizType: tag, Token: token})
	}
	return tokens, nil
}

// segments is the part of the configuration that package segment takes.
func (c *config) segments() segment.Config {
	return segment.Config{Period: c.segmentPeriod}
}

// openedSegments is where ranges come from. The zero value is the store.
type openedSegments struct {
	source segment.Source
	tags   func(context.Context) ([]server.SegmentTag, error)
	close  func() error
}

// openSegments opens what --segment-source says.
func (c *config) openSegments(_ context.Context) (openedSegments, error) {
	if c.segmentSource == segmentsFromRedis {
		return openedSegments{close: func() error { return nil }}, nil
	}
	db, dialect, err := openSQL(c.segmentSource)
	if err != nil {
		return openedSegments{}, fmt.Errorf("segment-source: %w", err)
	}
	leaf := segment.NewLeafAlloc(db, dialect, segment.LeafConfig{})
	return openedSegments{source: leaf, tags: func(ctx context.Context) ([]server.SegmentTag, error) { return leafTags(ctx, leaf) }, close: db.Close}, nil
}

// leafTags are the rows of the table for Leaf's pages.
func leafTags(ctx context.Context, leaf *segment.LeafAlloc) (tags []server.SegmentTag, err error) {
	rows, err := leaf.Tags(ctx)
	for _, row := range rows {
		tags = append(tags, server.SegmentTag{Tag: row.Tag, Max: row.MaxID, Step: row.Step, Updated: row.Updated.Format(time.DateTime)})
	}
	return tags, err
}
