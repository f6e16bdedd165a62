package server

import (
	"slices"

	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/snowflake"
)

// fromSegment hands out ids of a tag.
func (h *ids) fromSegment(r *request) error {
	tag := r.name("tag")
	asked, key := h.segmentOrder(r, tag)
	if r.err != nil {
		return r.err
	}
	ids := make([]int64, asked.n)
	if h.stored != nil && asked.opaque != nil {
		h.stored.HoldAt(tag, asked.opaque.Max())
	}
	if err := h.segments.Fill(r.ctx(), tag, ids); err != nil {
		return err
	}
	h.metrics.IDs("segment", len(ids))
	if err := asked.check(snowflake.ID(slices.Max(ids)), "the tag's ids"); err != nil {
		return err
	}
	head := `{"tag":"` + tag + `"` // a name needs no quoting
	if asked.opaque != nil {
		head += `,"key":"` + key + `"`
	}
	return asked.send(r, head, func(dst []byte, i int) ([]byte, error) {
		if asked.opaque != nil {
			return asked.opaque.Append(dst, ids[i])
		}
		return asked.format.Append(dst, snowflake.ID(ids[i]), asked.style)
	})
}

// segmentOrder reads how many ids are asked for, their format, and the key of opaque ones.
func (h *ids) segmentOrder(r *request, tag string) (asked order, key string) {
	asked = idOrder(r)
	if r.QueryParam("format") != opaqueFormat {
		// a segment's id has no time in it
		formats := slices.DeleteFunc(snowflake.Formats(), func(f snowflake.Format) bool { return f == snowflake.FormatTimed })
		asked.read(r, formats, opaqueFormat)
		return asked, ""
	}
	newest := h.key(r, "")
	width := r.int("width", number.MaxDigits, number.MinDigits, number.MaxDigits)
	if r.err == nil {
		asked.opaque, r.err = number.NewOpaque(newest.Value, int(width), []byte(tag))
	}
	return asked, newest.ID
}
