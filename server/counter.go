package server

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/wire"
)

func (s *Server) incr(c echo.Context) error {
	key, err := name(c, "key")
	if err != nil {
		return err
	}
	by, requestID, err := incrRequest(c)
	if err != nil {
		return err
	}
	got, err := s.counters.Incr(c.Request().Context(), key, by, requestID)
	if err != nil {
		return err
	}
	return sendNumber(c, got.Value, wire.Incremented{Key: key, Value: got.Value, First: got.First})
}

func incrRequest(c echo.Context) (by int64, requestID string, err error) {
	if err := body(c, &struct{}{}); err != nil {
		return 0, "", err
	}
	if by, err = queryInt(c, "by", 1, 1, counter.MaxBy); err != nil {
		return 0, "", err
	}
	requestID, err = idempotency.OptionalKey(c.Request())
	return by, requestID, err
}

func (s *Server) readCounter(c echo.Context) error {
	key, err := name(c, "key")
	if err != nil {
		return err
	}
	value, err := s.counters.Get(c.Request().Context(), key)
	if err != nil {
		return err
	}
	return sendNumber(c, value, wire.Counter{Key: key, Value: value})
}

// sendNumber answers with JSON, or with bare digits for a client that asked for text.
func sendNumber(c echo.Context, value int64, message any) error {
	fresh(c)
	if wantsText(c) {
		return c.String(http.StatusOK, strconv.FormatInt(value, 10)+"\n")
	}
	return c.JSON(http.StatusOK, message)
}
