// Package compat has the HTTP interfaces of two other id services, Meituan Leaf and Didi tinyid, so
// that their clients get the same answers, byte for byte: a client changes its address and nothing
// else. docs/doors.md has the answers of each path.
//
// The service that mounts the handlers supplies with [Service] the sources of ids and the meanings
// of errors. It routes and admits callers itself: the paths, any method each, are
//
//	/api/segment/get/:key             [Leaf.Segment]
//	/api/snowflake/get/:key           [Leaf.Snowflake]
//	/decodeSnowflakeId                [Leaf.Decode]
//	/cache                            [Leaf.Cache]
//	/db                               [Leaf.DB]
//	/tinyid/id/nextId                 [Tinyid.IDs]
//	/tinyid/id/nextIdSimple           [Tinyid.IDs]
//	/tinyid/id/nextSegmentId          [Tinyid.Range]
//	/tinyid/id/nextSegmentIdSimple    [Tinyid.Range]
//
// A handler returns an error that it has not answered: the service's own, as for a form too large.
package compat

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
)

// Service is the part of the mounting service that the handlers need. All fields are required but
// Access. All are used by many requests at once.
type Service struct {
	Segments *segment.Segments
	Source   segment.Source // of ranges that a client of tinyid takes for itself
	Stamper  *stamper.Stamper
	Metrics  *metrics.Service
	Logger   *slog.Logger // is told why a client got no id
	// lists the tags of Source; none if they cannot be listed
	Tags func(context.Context) ([]Tag, error)
	// decides what callers may do: the handlers then ignore tokens of tinyid, and use the caller in
	// the request's context; nil = tokens decide
	Access *access.Policy

	// Name reads a name from the request's path. It fails if that is none, or not for the caller.
	Name    func(c echo.Context, param string) (string, error)
	Problem func(error) api.Problem   // says what an error is to clients of the service itself
	Refused func(echo.Context, error) // is told, before the answer, why a caller is refused
}

// Tag is a tag of a segment source as people see it.
type Tag struct {
	Tag string
	// ids below Max are handed out, or fetched ahead; Step ids at least are fetched at once
	Max, Step int64
	Updated   string // when a range was taken last; "" = not known
}

// logFailure logs what the client's answer does not show.
func (s *Service) logFailure(c echo.Context, err error) {
	s.Logger.ErrorContext(c.Request().Context(), "no id for a door's client", "code", string(s.Problem(err).Code), "error", err)
}

// mayUse reports whether the caller may touch a name.
func mayUse(c echo.Context, name string) bool {
	return access.From(c.Request().Context()).Names.Allow(name)
}
