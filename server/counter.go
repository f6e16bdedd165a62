package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
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
	own := at.admin.where(judged)
	own.handle("PUT /counter/:key", "counter.Set", smallPrice, h.set, allowQuery("back"))
	own.handle("DELETE /counter/:key", "counter.Reset", smallPrice, h.remove, no)
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
	h.metrics.Incremented(got.Last - got.First + 1)
	return numbers.send(r, got)
}

func (h *counters) request(r *request) (asked counter.Request) {
	r.noFields()
	asked.By = r.int("by", 1, 1, counter.MaxBy)
	asked.Limit = r.int("limit", 0, 1, math.MaxInt64)
	asked.TTL = time.Duration(r.int("ttl_ms", 0, counter.MinTTL.Milliseconds(), counter.MaxTTL.Milliseconds())) * time.Millisecond
	asked.RequestID = h.requestID(r)
	if asked.AfterLoss = counter.AfterLoss(r.QueryParam("after_loss")); has(r, "after_loss") && asked.AfterLoss != counter.AfterLossStay {
		r.invalid("after_loss", string(counter.AfterLossStay)+", or nothing")
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
	only := r.conditions()
	if r.err != nil {
		return r.err
	}
	value, err := h.counters.Get(r.ctx(), key)
	if err != nil {
		return err
	}
	tag := counterTag(value, wantsText(r))
	if only.match.given && !only.match.has(tag) {
		return counter.ErrCondition
	}
	r.Response().Header().Set("ETag", `"`+string(tag)+`"`)
	if only.noneMatch.has(tag) {
		noStore(r)
		return r.NoContent(http.StatusNotModified)
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
	options := counter.SetOptions{TTL: ttl, Back: r.flag("back"), If: counterCondition(r.conditions())}
	if r.err != nil {
		return r.err
	}
	err := h.counters.Set(r.ctx(), key, *asked.Value, options)
	if past, is := errors.AsType[*counter.PastError](err); is {
		return &fault{api.CounterBack, "value", fmt.Sprintf("%s is at %d: set to %d it hands values out again. To do that: ?back=true, or "+
			"coatcheck counter set --back", key, past.At, *asked.Value)}
	}
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.CounterSet, Name: key, Value: asked.Value})
	return r.number(*asked.Value, api.Counter{Key: key, Value: *asked.Value})
}

func (h *counters) remove(r *request) error {
	key := r.name("key")
	r.noFields()
	condition := counterCondition(r.conditions())
	if r.err != nil {
		return r.err
	}
	if err := h.counters.ResetIf(r.ctx(), key, condition); err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.CounterRemoved, Name: key})
	return r.done()
}

// counterTag is the entity tag of a counter's value, as JSON or as text: the two have the same
// value and other bytes.
func counterTag(value int64, text bool) entityTag {
	tag := strconv.FormatInt(value, 10)
	if text {
		tag += asText
	}
	return entityTag(tag)
}

const asText = ".text"

// counterCondition is what preconditions require of a counter. Other text than that of a tag
// matches no value.
func counterCondition(only conditions) counter.Condition {
	values := func(of tags) (values []int64) {
		if of.given && !of.any {
			values = []int64{}
		}
		for _, tag := range of.list {
			value, err := strconv.ParseInt(strings.TrimSuffix(string(tag), asText), 10, 64)
			if err == nil && (tag == counterTag(value, false) || tag == counterTag(value, true)) {
				values = append(values, value)
			}
		}
		return values
	}
	return counter.Condition{
		Exists: only.match.any, In: values(only.match), Absent: only.noneMatch.any, NotIn: values(only.noneMatch),
	}
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
