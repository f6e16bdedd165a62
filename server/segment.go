package server

import (
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/snowflake"
)

// segmentIDs hands out ids of a tag.
func (s *Server) segmentIDs(c echo.Context) error {
	tag, err := name(c, "tag")
	if err != nil {
		return err
	}
	asked, key, err := s.segmentOrder(c, tag)
	if err != nil {
		return err
	}
	ids := make([]int64, asked.n)
	if s.stored != nil && asked.opaque != nil {
		s.stored.ends.note(tag, asked.opaque.Max())
	}
	if err := s.segments.NextN(c.Request().Context(), tag, ids); err != nil {
		return err
	}
	s.metrics.IDs("segment", len(ids))
	if err := asked.check(snowflake.ID(slices.Max(ids)), "the tag's ids"); err != nil {
		return err
	}
	head := `{"tag":"` + tag + `"` // a name needs no quoting
	if asked.opaque != nil {
		head += `,"key":"` + key + `"`
	}
	return sendIDs(c, asked, head, func(dst []byte, i int) ([]byte, error) {
		if asked.opaque != nil {
			return asked.opaque.Append(dst, ids[i])
		}
		return asked.format.Append(dst, snowflake.ID(ids[i]), asked.style)
	})
}

// segmentOrder reads how many ids are asked for and how they are to be written, with which key if
// they are to be opaque.
func (s *Server) segmentOrder(c echo.Context, tag string) (asked order, key string, err error) {
	if asked, err = idOrder(c); err != nil {
		return asked, "", err
	}
	if c.QueryParam("format") != opaqueFormat {
		// a segment's id has no time in it
		formats := slices.DeleteFunc(snowflake.Formats(), func(f snowflake.Format) bool { return f == snowflake.Timed })
		return asked, "", asked.read(c, formats, opaqueFormat)
	}
	newest, err := s.opaqueKey("")
	if err != nil {
		return asked, "", err
	}
	width, err := queryInt(c, "width", number.MaxDigits, number.MinDigits, number.MaxDigits)
	if err != nil {
		return asked, "", err
	}
	asked.opaque, err = number.NewOpaque(newest.Secret, int(width), []byte(tag))
	return asked, newest.ID, err
}
