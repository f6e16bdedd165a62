package server

import (
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

const maxCounters = 1000 // of a page

// counters are the handlers of /incr and /counter.
type counters struct {
	counters  *counter.Counters
	metrics   *metrics.Service
	journal   *journal
	principal func(*http.Request) (string, error)
	tokens    *idempotency.Tokens
	now       func() time.Time
	roles     bool     // access is controlled: a caller has the role that it has shown
	zones     sync.Map // *time.Location by name
}

func (h *counters) routes(at *router) {
	incr := allowQuery("by", "limit", "ttl_ms", "after_loss", "template", "calendar", "zone", "at")
	at.use.handle("GET,POST /incr/:key", "counter.Add", smallPrice, h.incr, handsOut, incr)
	at.read.handle("GET /counter/:key", "counter.Get", smallPrice, h.get, no)
	at.admin.handle("PUT /counter/:key", "counter.Set", smallPrice, h.set, no)
	at.admin.handle("DELETE /counter/:key", "counter.Reset", smallPrice, h.remove, no)
	at.read.handle("GET /counter", "counter.List", pagePrice, h.list, allowQuery("prefix", "cursor", "n"))
}

func (h *counters) incr(r *request) error {
	key := r.name("key")
	asked := h.request(r)
	numbers := h.numbering(r, key, &asked)
	if r.err != nil {
		return r.err
	}
	asked.GiveEnd = asked.TTL > 0 && h.roles && caller(r).May(access.Admin)
	got, err := h.counters.Add(r.ctx(), numbers.key, asked)
	if err != nil {
		return numbers.refused(err)
	}
	h.metrics.Incremented(got.Value - got.First + 1)
	return numbers.send(r, got)
}

func (h *counters) request(r *request) (asked counter.Request) {
	r.noFields()
	asked.By = r.int("by", 1, 1, counter.MaxBy)
	asked.Limit = r.int("limit", 0, 1, math.MaxInt64)
	asked.TTL = time.Duration(r.int("ttl_ms", 0, counter.MinTTL.Milliseconds(), counter.MaxTTL.Milliseconds())) * time.Millisecond
	asked.RequestID = h.requestID(r)
	if asked.AfterLoss = counter.AfterLoss(r.QueryParam("after_loss")); has(r, "after_loss") && asked.AfterLoss != counter.Stay {
		r.invalid("after_loss", string(counter.Stay)+", or nothing")
	}
	if has(r, "after_loss") && (!has(r, "limit") || !has(r, "ttl_ms") && !has(r, "calendar")) {
		r.invalid("after_loss", "only with limit, and with ttl_ms or calendar: it is for counts whose values nobody uses")
	}
	if has(r, "after_loss") && has(r, "template") {
		r.invalid("after_loss", "not with template: a number could be written twice")
	}
	return asked
}

// requestID is the Idempotency-Key of a repeatable increment, "" if there is none.
func (h *counters) requestID(r *request) string {
	key, err := idempotency.OptionalKey(r.Request())
	r.fail(err)
	if key == "" {
		return ""
	}
	principal, err := h.principal(r.Request())
	r.fail(err)
	h.tokens.WarnNameless(r.ctx(), principal, "/incr/{key}")
	return repeatable(principal, key)
}

// repeatable names a repeatable increment. Keys of two principals never meet, so it is a digest of
// both where the caller has a principal, and where the key itself looks like such a digest.
func repeatable(principal, key string) string {
	if principal != "" || names.Digested.MatchString(key) {
		return names.Digest(principal, key)
	}
	return key
}

func (h *counters) get(r *request) error {
	key := r.name("key")
	if r.err != nil {
		return r.err
	}
	value, err := h.counters.Get(r.ctx(), key)
	if err != nil {
		return err
	}
	return r.number(value, api.Counter{Key: key, Value: value})
}

func (h *counters) set(r *request) error {
	key := r.name("key")
	var asked api.CounterRequest
	r.body(&asked)
	if asked.Value == nil {
		r.invalid("value", "required: the value that the counter is to have")
	}
	ttl := r.millis("ttl_ms", asked.TTLMs, 0, counter.MinTTL, counter.MaxTTL)
	if r.err != nil {
		return r.err
	}
	if err := h.counters.Set(r.ctx(), key, *asked.Value, ttl); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.CounterSet, Name: key, Value: asked.Value})
	return r.number(*asked.Value, api.Counter{Key: key, Value: *asked.Value})
}

func (h *counters) remove(r *request) error {
	key := r.name("key")
	r.noFields()
	if r.err != nil {
		return r.err
	}
	if err := h.counters.Reset(r.ctx(), key); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.CounterRemoved, Name: key})
	return r.done()
}

func (h *counters) list(r *request) error {
	asked := r.list(maxCounters)
	if r.err != nil {
		return r.err
	}
	next := "" // a page of counters that have expired is empty, and has a next one
	keyOf := func(one counter.Listed) string { return one.Key }
	found, more, err := pageOf(asked, keyOf, func(prefix, cursor string, n int) (page []counter.Listed, more bool, err error) {
		page, next, err = h.counters.List(r.ctx(), prefix, cursor, n)
		return page, next != "", err
	})
	if err != nil {
		return err
	}
	page := api.Counters{Counters: []api.ListedCounter{}}
	for _, one := range found {
		listed := api.ListedCounter{Key: one.Key, Value: &one.Value}
		if one.Err != nil {
			listed.Value, listed.Error = nil, api.NotAnInteger
		}
		page.Counters = append(page.Counters, listed)
	}
	if more && next == "" {
		next = found[len(found)-1].Key // the caller may see names beyond those that were asked for
	}
	if more {
		page.Next = next
	}
	return r.answer(http.StatusOK, page)
}
