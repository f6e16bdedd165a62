package server

import (
	"context"

	"github.com/coatcheck/coatcheck/internal/compat"
)

// LeafDoor says what clients of Meituan Leaf are given. The zero value gives all that Leaf does.
type LeafDoor struct {
	NoSegment, NoSnowflake bool // modes that are switched off: they answer 0
	// of the Snowflake ids, which has Leaf's layout and epoch; "" = leaf
	Pool string
}

// TinyidToken lets a client of Didi tinyid draw ids of a tag. A tag can have several, and a token
// can be of several tags.
type TinyidToken struct{ BizType, Token string }

// compatible is what the handlers of other systems' routes need of the service.
func (s *Server) compatible() compat.Service {
	return compat.Service{
		Segments: s.segments, Source: s.source, Stamper: s.stamper, Metrics: s.metrics, Logger: s.log, Tags: s.compatibleTags, Access: s.config.Access,
		Name: name, Problem: problemOf, Refused: s.noteRefusal,
	}
}

// compatibleTags lists the tags of the source, if it can be listed.
func (s *Server) compatibleTags(ctx context.Context) (tags []compat.Tag, err error) {
	if s.config.SegmentTags == nil {
		return nil, nil
	}
	listed, err := s.config.SegmentTags(ctx)
	for _, tag := range listed {
		tags = append(tags, compat.Tag(tag))
	}
	return tags, err
}

func (c Config) tinyidTokens() (tokens []compat.Token) {
	for _, token := range c.TinyidTokens {
		tokens = append(tokens, compat.Token(token))
	}
	return tokens
}
