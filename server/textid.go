package server

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/textid"
)

// ulids makes ULIDs. They rise within this process, also when its clock goes back.
func (h *ids) ulids(r *request) error {
	asked := idOrder(r)
	if r.err != nil {
		return r.err
	}
	return h.sendTexts(r, asked, textid.ULID, "{", textid.NewULID)
}

// typeIDs makes TypeIDs: a prefix, and a UUID of version 7.
func (h *ids) typeIDs(r *request) error {
	asked := idOrder(r)
	prefix := r.QueryParam("prefix")
	if err := textid.CheckPrefix(prefix); err != nil {
		r.invalid("prefix", err.Error())
	}
	if r.err != nil {
		return r.err
	}
	// a prefix needs no quoting
	return h.sendTexts(r, asked, textid.TypeID, `{"prefix":"`+prefix+`"`, func() (string, error) { return textid.NewTypeID(prefix) })
}

// sendTexts makes all ids before it answers, so that an error is an answer of its own.
func (h *ids) sendTexts(r *request, asked order, kind, head string, newID func() (string, error)) error {
	ids := make([]string, asked.n)
	for i := range ids {
		var err error
		if ids[i], err = newID(); err != nil {
			return err
		}
	}
	h.metrics.IDs(kind, len(ids))
	return asked.send(r, head, func(dst []byte, i int) ([]byte, error) { return append(dst, ids[i]...), nil })
}

// decodeText takes a ULID or a TypeID apart.
func (h *ids) decodeText(r *request, format string) error {
	r.without("not with format="+format, "pool", "layout", "epoch", "datacenter", "tag", "key")
	text, err := url.PathUnescape(r.segment("id"))
	if err != nil {
		r.invalid("id", "not percent-encoded as it should be")
	}
	if r.err != nil {
		return r.err
	}
	parts, err := textid.Decode(format, text)
	if err != nil {
		return invalid("id", err.Error())
	}
	if parts.Time.Year() > lastYear {
		return invalid("id", fmt.Sprintf("of a time after the year %d", lastYear))
	}
	decoded := api.DecodedText{ID: parts.ID, Prefix: parts.Prefix, UUID: parts.UUID, Time: api.At(parts.Time)}
	if !wantsText(r) {
		return r.answer(http.StatusOK, decoded)
	}
	noStore(r)
	return r.String(http.StatusOK, decoded.Text())
}
