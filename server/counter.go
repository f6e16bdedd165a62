package server

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
)

const maxCounters = 1000 // of a page

func (s *Server) incr(c echo.Context) error {
	key, err := name(c, "key")
	if err != nil {
		return err
	}
	request, err := s.incrRequest(c)
	if err != nil {
		return err
	}
	numbers, err := s.numbering(c, key, &request)
	if err != nil {
		return err
	}
	got, err := s.counters.Add(c.Request().Context(), numbers.key, request)
	if err != nil {
		return err
	}
	s.metrics.Incremented(got.Value - got.First + 1)
	return numbers.send(c, got)
}

func (s *Server) incrRequest(c echo.Context) (request counter.Request, err error) {
	if err := body(c, &struct{}{}); err != nil {
		return request, err
	}
	if request.By, err = queryInt(c, "by", 1, 1, counter.MaxBy); err != nil {
		return request, err
	}
	ttl, err := queryInt(c, "ttl_ms", 0, counter.MinTTL.Milliseconds(), counter.MaxTTL.Milliseconds())
	if err != nil {
		return request, err
	}
	request.TTL = time.Duration(ttl) * time.Millisecond
	request.RequestID, err = s.requestID(c.Request())
	return request, err
}

// requestID is the Idempotency-Key of a repeatable increment, "" if there is none. Keys of two
// principals never meet, so it is a digest of both where the caller has a principal.
func (s *Server) requestID(r *http.Request) (string, error) {
	key, err := idempotency.OptionalKey(r)
	principal := s.principal(r)
	if err != nil || key == "" || principal == "" {
		return key, err
	}
	return names.Digest(principal, key), nil
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

func (s *Server) setCounter(c echo.Context) error {
	key, err := name(c, "key")
	if err != nil {
		return err
	}
	var asked wire.CounterRequest
	if err := body(c, &asked); err != nil {
		return err
	}
	if asked.Value == nil {
		return invalid("value", "required: the value that the counter is to have")
	}
	ttl, err := ttlOf(asked.TTL)
	if err != nil {
		return err
	}
	if err := s.counters.Set(c.Request().Context(), key, *asked.Value, ttl); err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.CounterSet, Name: key, Value: asked.Value})
	return sendNumber(c, *asked.Value, wire.Counter{Key: key, Value: *asked.Value})
}

func ttlOf(ms *int64) (time.Duration, error) {
	switch {
	case ms == nil:
		return 0, nil
	case *ms < counter.MinTTL.Milliseconds() || *ms > counter.MaxTTL.Milliseconds():
		return 0, invalid("ttl_ms", fmt.Sprintf("%d to %d", counter.MinTTL.Milliseconds(), counter.MaxTTL.Milliseconds()))
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

func (s *Server) removeCounter(c echo.Context) error {
	key, err := name(c, "key")
	if err != nil {
		return err
	}
	if err := body(c, &struct{}{}); err != nil {
		return err
	}
	if err := s.counters.Reset(c.Request().Context(), key); err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.CounterRemoved, Name: key})
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) listCounters(c echo.Context) error {
	n, err := queryInt(c, "n", 100, 1, maxCounters)
	if err != nil {
		return err
	}
	prefix, cursor, err := queryPage(c)
	if err != nil {
		return err
	}
	keyOf := func(one counter.Listed) string { return one.Key }
	next := "" // a page of counters that have expired is empty, and has a next one
	found, more, err := pageOf(c, prefix, cursor, int(n), keyOf, func(prefix, cursor string, n int) (page []counter.Listed, more bool, err error) {
		page, next, err = s.counters.List(c.Request().Context(), prefix, cursor, n)
		return page, next != "", err
	})
	if err != nil {
		return err
	}
	page := wire.Counters{Counters: []wire.ListedCounter{}}
	for _, one := range found {
		listed := wire.ListedCounter{Key: one.Key, Value: &one.Value}
		if one.Err != nil {
			listed.Value, listed.Error = nil, string(wire.NotAnInteger)
		}
		page.Counters = append(page.Counters, listed)
	}
	if more && next == "" {
		next = found[len(found)-1].Key // the caller may see names beyond those that were asked for
	}
	if more {
		page.Next = next
	}
	noStore(c)
	return c.JSON(http.StatusOK, page)
}

// queryPage reads where a page of names begins.
func queryPage(c echo.Context) (prefix, cursor string, err error) {
	prefix, cursor = c.QueryParam("prefix"), c.QueryParam("cursor")
	for _, field := range []string{"prefix", "cursor"} {
		if text := c.QueryParam(field); text != "" && !names.Valid(text) {
			return "", "", invalid(field, nameRule)
		}
	}
	return prefix, cursor, nil
}

// sendNumber answers with JSON, or with bare digits for a client that asked for text.
func sendNumber(c echo.Context, value int64, message any) error {
	noStore(c)
	if wantsText(c) {
		return c.String(http.StatusOK, strconv.FormatInt(value, 10)+"\n")
	}
	return c.JSON(http.StatusOK, message)
}
