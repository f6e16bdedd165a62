// Package compat has the HTTP interfaces of two other id services, Meituan Leaf and Didi tinyid, so
// that their clients are answered as they are there, byte for byte: a client changes its address
// and nothing else. What each path answers stands in docs/doors.md.
//
// The service that mounts the handlers says with [Service] what it draws ids from and what its
// errors mean. It routes and lets callers in by itself: the paths, any method each, are
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
// An error that a handler returns has not been answered: it is the service's own, such as a form
// that is too large.
package compat

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/stamper"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/segment"
)

// Service is what the handlers need of the service that mounts them. All fields are required but
// Access. All are used by many requests at once.
type Service struct {
	Segments *segment.Segments
	Source   segment.Source // of ranges that a client of tinyid takes for itself
	Stamper  *stamper.Stamper
	Metrics  *metrics.Service
	Logger   *slog.Logger // is told why a client got no id
	// lists the tags of Source; nil = they cannot be listed
	Tags func(context.Context) ([]Tag, error)
	// says who may do what: tokens of tinyid are nothing to the handlers then, and the caller in
	// the request's context is; nil = tokens say it
	Access *access.Policy

	// Name reads a name from the request's path. The error says that it is none, or that the
	// caller may not touch it.
	Name    func(c echo.Context, param string) (string, error)
	Problem func(error) wire.Problem  // says what an error is to clients of the service itself
	Refused func(echo.Context, error) // is told, before the answer, why a caller is refused
}

// Tag is a tag of a segment source as people see it.
type Tag struct {
	Tag string
	// ids below Max are handed out, or fetched ahead; Step ids at least are fetched at once
	Max, Step int64
	Updated   string // when a range was taken last; "" = not known
}

// logFailure tells the operator what the client's answer does not.
func (s *Service) logFailure(c echo.Context, err error) {
	s.Logger.ErrorContext(c.Request().Context(), "no id for a door's client", "code", string(s.Problem(err).Code), "error", err)
}

// mayUse reports whether the caller may touch a name.
func mayUse(c echo.Context, name string) bool {
	return access.From(c.Request().Context()).Names.Allow(name)
}
