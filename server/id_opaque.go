package server

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/number"
)

// opaqueFormat is numbers that hide their order. Those of two tags have nothing in common.
const opaqueFormat = "opaque"

// key finds a key by its id; "" is the newest.
func (h *ids) key(r *request, id string) idempotency.Secret {
	for _, key := range h.keys {
		if id == "" || key.ID == id {
			return key
		}
	}
	if len(h.keys) == 0 {
		r.invalid("format", "this server has no key for opaque numbers; give it one with --opaque-keys id:secret, the secret base64 of "+
			"32 random bytes")
	}
	r.invalid("key", "this server has no opaque key with that id")
	return idempotency.Secret{}
}

// decodeOpaque returns the id of an opaque number. Every number of that many digits has one,
// whether or not it was ever handed out.
func (h *ids) decodeOpaque(r *request) error {
	r.without("not with format=opaque", "pool", "layout", "epoch", "datacenter")
	query := r.QueryParams()
	tag := query.Get("tag")
	if !names.Valid(tag) {
		r.fail(&fault{api.InvalidName, "tag", "of which tag the number is; " + nameRule})
	}
	r.mayTouch("tag", tag)
	if query.Has("key") && query.Get("key") == "" {
		r.invalid("key", "this server has no opaque key with that id")
	}
	key := h.key(r, query.Get("key"))
	id := opaqueOfPath(r, key, tag)
	if r.err != nil {
		return r.err
	}
	if wantsText(r) {
		noStore(r)
		return r.String(http.StatusOK, fmt.Sprintf("%d\n", id))
	}
	return r.answer(http.StatusOK, api.DecodedOpaque{ID: fmt.Sprint(id), Tag: tag, Key: key.ID})
}

// opaqueOfPath reads the number. Its length is its width.
func opaqueOfPath(r *request, key idempotency.Secret, tag string) int64 {
	text, err := url.PathUnescape(r.segment("id"))
	if err != nil || len(text) < number.MinDigits || len(text) > number.MaxDigits {
		r.invalid("id", fmt.Sprintf("an opaque number has %d to %d digits", number.MinDigits, number.MaxDigits))
	}
	if r.err != nil {
		return 0
	}
	opaque, err := number.NewOpaque(key.Value, len(text), []byte(tag))
	if err != nil {
		r.fail(err)
		return 0
	}
	id, err := opaque.Decode(text)
	if err != nil {
		r.invalid("id", "not an opaque number: digits alone")
	}
	return id
}
