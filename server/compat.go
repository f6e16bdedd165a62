package server

import "github.com/coatcheck/coatcheck/server/internal/compat"

// The settings of the routes for clients of other systems.
type (
	// LeafDoor switches modes off for clients of Meituan Leaf, with NoSegment and NoSnowflake: they
	// answer 0. Pool is that of the Snowflake ids, which has Leaf's layout and epoch; "" = leaf.
	LeafDoor = compat.LeafConfig

	// TinyidToken lets a client of Didi tinyid draw ids of a tag, its BizType, with a Token. A tag
	// can have several, and a token can be of several tags.
	TinyidToken = compat.Token

	// SegmentTag is a tag of a segment source as people see it: ids below its Max are handed out,
	// or fetched ahead, Step ids at least at once, and last when Updated says; "" = not known.
	SegmentTag = compat.Tag
)

// compatible registers the routes of other systems, with any method and parameter, as these do.
func (s *Server) compatible(at *router) {
	service := compat.Service{
		Segments: s.segments, Source: s.source, Stamper: s.stamper, Metrics: s.metrics, Logger: s.log, Tags: s.config.SegmentTags,
		Access: s.config.Access,
		Name:   nameOf, Problem: problemOf, Refused: s.journal.refused,
	}
	const all = "GET,HEAD,POST,PUT,PATCH,DELETE "
	leaf := compat.NewLeaf(service, s.config.Leaf)
	leafs := clients{refuse: leaf.Refuse}
	at.use.forClients(leafs).add(all+"/api/segment/get/:key", "segment.Next", leaf.Segment)
	at.use.forClients(leafs).add(all+"/api/snowflake/get/:key", "snowflake.Stamp", leaf.Snowflake)
	at.read.forClients(leafs).add(all+"/decodeSnowflakeId", "", leaf.Decode)
	at.read.forClients(leafs).add(all+"/cache", "", leaf.Cache)
	at.read.forClients(leafs).add(all+"/db", "segment.Tags", leaf.DB)

	tinyid := compat.NewTinyid(service, s.config.TinyidTokens)
	tinyids := at.use.forClients(clients{key: tinyid.Key, own: tinyid.Own, refuse: tinyid.Refuse})
	tinyids.add(all+"/tinyid/id/nextId", "segment.NextN", tinyid.IDs)
	tinyids.add(all+"/tinyid/id/nextIdSimple", "segment.NextN", tinyid.IDs)
	tinyids.add(all+"/tinyid/id/nextSegmentId", "segment.Take", tinyid.Range)
	tinyids.add(all+"/tinyid/id/nextSegmentIdSimple", "segment.Take", tinyid.Range)
}
