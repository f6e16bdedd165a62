package server

import (
	"context"

	"github.com/coatcheck/coatcheck/server/internal/compat"
)

// LeafDoor configures the routes for clients of Meituan Leaf. The zero value offers all of Leaf;
// without both modes there are no routes.
type LeafDoor struct {
	NoSegment, NoSnowflake bool // modes that are switched off: they answer 0
	// of the Snowflake ids, which has Leaf's layout and epoch; "" = leaf
	Pool string
}

// TinyidToken lets a client of Didi tinyid draw ids of a tag. A tag can have several, and a token
// can be of several tags.
type TinyidToken struct{ BizType, Token string }

// SegmentTag is a tag of a segment source as people see it.
type SegmentTag struct {
	Tag string
	// ids below Max are handed out, or fetched ahead; Step ids at least are fetched at once
	Max, Step int64
	Updated   string // when a range was taken last; "" = not known
}

// compatible registers the routes of other systems, with any method and parameter, as these do.
func (s *Server) compatible(at *router) {
	service := compat.Service{
		Segments: s.segments, Source: s.source, Stamper: s.stamper, Metrics: s.metrics, Logger: s.log, Tags: s.compatibleTags,
		Access: s.config.Access,
		Name:   nameOf, Problem: problemOf, Refused: s.journal.refused,
	}
	const all = "GET,HEAD,POST,PUT,PATCH,DELETE "
	if !s.config.Leaf.NoSegment || !s.config.Leaf.NoSnowflake {
		s.leafRoutes(at, service, all)
	}
	var tokens []compat.Token
	for _, token := range s.config.TinyidTokens {
		tokens = append(tokens, compat.Token(token))
	}
	tinyid := compat.NewTinyid(service, tokens)
	tinyids := at.use.forClients(clients{key: tinyid.Key, own: tinyid.Own, refuse: tinyid.Refuse})
	tinyids.add(all+"/tinyid/id/nextId", "segment.NextN", smallPrice, tinyid.IDs)
	tinyids.add(all+"/tinyid/id/nextIdSimple", "segment.NextN", smallPrice, tinyid.IDs)
	tinyids.add(all+"/tinyid/id/nextSegmentId", "segment.Take", smallPrice, tinyid.Range)
	tinyids.add(all+"/tinyid/id/nextSegmentIdSimple", "segment.Take", smallPrice, tinyid.Range)
}

func (s *Server) leafRoutes(at *router, service compat.Service, all string) {
	leaf := compat.NewLeaf(service, compat.LeafConfig(s.config.Leaf))
	leafs := clients{refuse: leaf.Refuse}
	at.use.forClients(leafs).add(all+"/api/segment/get/:key", "segment.Next", smallPrice, leaf.Segment)
	at.use.forClients(leafs).add(all+"/api/snowflake/get/:key", "snowflake.Stamp", smallPrice, leaf.Snowflake)
	at.read.forClients(leafs).add(all+"/decodeSnowflakeId", "", smallPrice, leaf.Decode)
	at.read.forClients(leafs).add(all+"/cache", "", pagePrice, leaf.Cache)
	at.read.forClients(leafs).add(all+"/db", "segment.Tags", pagePrice, leaf.DB)
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
