package server

// compatible is what the handlers of other systems' routes need of the service.
func (s *Server) compatible() Service {
	return Service{
		Segments: s.segments, Source: s.source, Stamper: s.stamper, Metrics: s.metrics, Logger: s.log, Tags: s.config.SegmentTags, Access: s.config.Access,
		Name: name, Problem: problemOf, Refused: s.noteRefusal,
	}
}
