package server

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/number"
)

// opaqueFormat is numbers that do not tell their order. Those of two tags have nothing in common.
const opaqueFormat = "opaque"

// opaqueKey finds a key by its id; "" is the newest.
func (s *Server) opaqueKey(id string) (idempotency.Key, error) {
	keys := s.config.OpaqueKeys
	if len(keys) == 0 {
		return idempotency.Key{}, invalid("format", "this server has no key for opaque numbers; give it one with --opaque-key id:secret, the secret base64 of 32 random bytes")
	}
	for _, key := range keys {
		if id == "" || key.ID == id {
			return key, nil
		}
	}
	return idempotency.Key{}, invalid("key", "this server has no opaque key with that id")
}

// decodeOpaque gives the id behind an opaque number. Every number of that many digits is one of
// some id: it says nothing of whether that was ever handed out.
func (s *Server) decodeOpaque(c echo.Context) error {
	query := c.QueryParams()
	for _, field := range []string{"pool", "layout", "epoch", "datacenter"} {
		if query.Has(field) {
			return invalid(field, "not with format=opaque")
		}
	}
	tag := query.Get("tag")
	if !names.Valid(tag) {
		return &fault{wire.InvalidName, "tag", "of which tag the number is; " + nameRule}
	}
	if err := mayTouch(c, "tag", tag); err != nil {
		return err
	}
	if query.Has("key") && query.Get("key") == "" {
		return invalid("key", "this server has no opaque key with that id")
	}
	key, err := s.opaqueKey(query.Get("key"))
	if err != nil {
		return err
	}
	id, err := opaqueOfPath(c, key, tag)
	if err != nil {
		return err
	}
	noStore(c)
	if wantsText(c) {
		return c.String(http.StatusOK, fmt.Sprintf("%d\n", id))
	}
	return c.JSON(http.StatusOK, wire.DecodedOpaque{ID: fmt.Sprint(id), Tag: tag, Key: key.ID})
}

// opaqueOfPath reads the number. Its length says its width.
func opaqueOfPath(c echo.Context, key idempotency.Key, tag string) (int64, error) {
	escaped, err := segmentOf(c, "id")
	if err != nil {
		return 0, err
	}
	text, err := url.PathUnescape(escaped)
	if err != nil || len(text) < number.MinDigits || len(text) > number.MaxDigits {
		return 0, invalid("id", fmt.Sprintf("an opaque number has %d to %d digits", number.MinDigits, number.MaxDigits))
	}
	opaque, err := number.NewOpaque(key.Secret, len(text), []byte(tag))
	if err != nil {
		return 0, err
	}
	id, err := opaque.Decode(text)
	if err != nil {
		return 0, invalid("id", "not an opaque number: digits alone")
	}
	return id, nil
}

// notOpaque refuses what belongs to opaque numbers alone.
func notOpaque(c echo.Context) error {
	for _, field := range []string{"tag", "key"} {
		if has(c, field) {
			return invalid(field, "only with format=opaque")
		}
	}
	return nil
}
