package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/names"
)

// Route is the policy of one guarded route. The zero value of each field means its default.
type Route struct {
	// part of a key's scope and of the fingerprint; "" = the pattern, or the method and path. One
	// that is written as a pattern has the notation of net/http.ServeMux, not another router's
	Name   string
	Accept Accept // which header it takes; "" = AcceptEither
	// the key space: a key is one operation on all routes that have the same. It takes the place of
	// Name in a key's scope and in the fingerprint; "" = Name
	Keys string
	// other names of Idempotency-Key, for senders with an id of their own, such as webhook-id: the
	// first that a request has is its key, taken as it stands, and comes before Idempotency-Key.
	// Several headers with " + " between them, as "ce-source + ce-id", are one key together
	KeyHeaders []string
	// where the payload, which is JSON, has the key of a request without one in a header: JSON
	// Pointers (RFC 6901), such as /id, each to a text without control characters, or to a whole
	// number; together they have up to 1,024 bytes, and are one key. Such a payload is not
	// compared: who sends one again may write it anew. An Idempotency-Key counts only where
	// KeyHeaders has it
	KeyFromBody []string
	Optional    bool // a request without a header passes unguarded, up to MaxBody
	// a header that Accept does not take is the handler's; false = such a request is refused
	PassOther bool
	// GET, HEAD, OPTIONS and TRACE pass unguarded: for a guard in front of a whole router
	PassSafe  bool
	Policy    Policy        // "" = PolicyHold
	Lease     time.Duration // how long an attempt may be silent before it is in doubt; 0 = 30 s
	Retention time.Duration // how long an answer is kept; 0 = 24 h
	// tokens that were issued for another scope are refused; "" = only tokens without a scope fit
	Scope string
	// replicas that must have the claim before the handler runs; 0 = what the store asks for
	Ack       int
	MaxBody   int64 // bytes of a request's body; more is refused. 0 = 1 MiB
	MaxAnswer int   // bytes of an answer's body that are kept; 0 = 1 MiB
	// how long Prefer: wait=n may wait for a running attempt; 0 = 30 s, below 0 = not at all
	MaxWait time.Duration

	// Resolve ends the doubt about an operation of this route whose attempt ended without an
	// answer; a repeat with Prefer: wait waits for it. nil = it stays in doubt until somebody
	// settles it
	Resolve Resolver

	// Principal identifies the caller on this route; nil = as [Config].Principal
	Principal func(*http.Request) (string, error)

	// Headers of the request that belong to its fingerprint, beside method, route, path with query
	// and body; nil = none.
	Headers []string
	// CanonicalJSON compares bodies that one Content-Type says are JSON in UTF-8 by their canonical
	// form (RFC 8785): white space and the order of names do not matter.
	CanonicalJSON bool
	// Keep, Frees and Doubts say by the status of an answer, such as 503, or by its class, such as
	// 5xx, how an operation ends. A status counts before its class, and Attempt.Release and
	// Attempt.Abandon before both.
	//
	// Keep lists the statuses whose answers are recorded: every repeat gets the answer. nil = all
	// that Frees and Doubts do not list. With a list, an answer of any status that stands in no
	// list leaves the operation in doubt.
	Keep []string
	// Frees lists the statuses after which the key is free and the next request runs. Only a status
	// that the handler and all that stands before it send where nothing was done belongs here: with
	// any other one an operation runs twice. nil = none.
	Frees []string
	// Doubts lists the statuses that are no answer: nobody knows whether the operation happened,
	// and it is in doubt. nil = 408, 502, 503 and 504, with which proxies and time limits answer
	// while the work may run on; an empty list is none.
	Doubts []string
}

// WithDefaults returns the route with the defaults of Doubts and of all but Name, Scope, Ack and
// the other lists.
func (r Route) WithDefaults() Route {
	r.Accept = cmp.Or(r.Accept, AcceptEither)
	options := ClaimOptions{Policy: r.Policy, Lease: r.Lease, Retention: r.Retention}.withDefaults()
	r.Policy, r.Lease, r.Retention = options.Policy, options.Lease, options.Retention
	r.MaxBody = cmp.Or(r.MaxBody, 1<<20)
	r.MaxAnswer = cmp.Or(r.MaxAnswer, 1<<20)
	r.MaxWait = cmp.Or(r.MaxWait, 30*time.Second)
	if r.Doubts == nil {
		r.Doubts = r.usuallyDoubted()
	}
	return r
}

// Check returns every fault of a route, each with the bound that it breaks.
func (r Route) Check() error {
	r = r.WithDefaults()
	faults := []error{r.options("").check()}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("idempotency: "+format, args...))
		}
	}
	if patternLike().MatchString(r.Name) {
		wrong := muxpattern.Fault(r.Name)
		fault(wrong != "", "name %q: %s", r.Name, wrong)
	}
	fault(!slices.Contains([]Accept{AcceptEither, AcceptToken, AcceptKey}, r.Accept), "accept %q: token, key or either", r.Accept)
	fault(r.Ack < 0 || r.Ack > 100, "ack %d: 0 to 100 replicas", r.Ack)
	fault(r.MaxBody < 0, "max body %d: not below 0", r.MaxBody)
	fault(r.MaxAnswer < 0, "max answer %d: not below 0", r.MaxAnswer)
	fault(len(r.Scope) > maxScope, "scope: up to %d characters", maxScope)
	fault(r.Keep != nil && len(r.Keep) == 0,
		"keep: at least one status; without the list every answer is kept that frees and doubts do not list")
	for _, name := range slices.Concat(r.Headers, headersIn(r.KeyHeaders)) {
		fault(!names.Header.MatchString(name), "header %q: not a header's name", name)
	}
	fault(r.Accept == AcceptToken && len(r.KeyHeaders)+len(r.KeyFromBody) > 0,
		"accept token: a route with key headers or a key in the body takes keys")
	for i, one := range r.KeyFromBody {
		fault(!validPointer(one), "key from body %q: a JSON Pointer of 1 to %d characters belongs here, such as /id or /data/0/id; "+
			"did you mean %q?", one, maxPointer, likelyPointer(one))
		fault(slices.Contains(r.KeyFromBody[:i], one), "key from body %q: given twice", one)
	}
	seen := map[string]bool{http.CanonicalHeaderKey(TokenHeader): true}
	for _, name := range headersIn(r.KeyHeaders) {
		same := http.CanonicalHeaderKey(name)
		fault(seen[same], "key header %q: given twice, or a token's", name)
		seen[same] = true
	}
	if _, err := r.statuses(); err != nil {
		for wrong := range strings.Lines(err.Error()) {
			fault(true, "%s", strings.TrimSpace(wrong))
		}
	}
	return errors.Join(faults...)
}

// patternLike matches a name that is written as a pattern: a path, perhaps after a method.
var patternLike = lazyregexp.New(`^(?:\S+[ \t]+\S*)?/`)

// RoutePolicy is a route's policy as JSON for clients, in the form that openapi.yaml describes.
type RoutePolicy = api.RoutePolicy

// Published is the route's policy as clients may see it: its header, its retention, and which
// requests count as the same.
func (r Route) Published() RoutePolicy {
	r = r.WithDefaults()
	body := "body"
	if r.CanonicalJSON {
		body = "body, JSON in canonical form (RFC 8785)"
	}
	if len(r.KeyFromBody) > 0 {
		body += ", unless the key is from it"
	}
	fingerprint, uniqueBy := []string{"method", "path and query"}, []string{"principal", "key"}
	uniqueOver := "all routes of the key space " + r.Keys
	if r.Keys == "" {
		uniqueOver = ""
		fingerprint, uniqueBy = []string{"method", "route", "path and query"}, []string{"principal", "route", "key"}
	}
	for _, name := range r.Headers {
		fingerprint = append(fingerprint, "header "+http.CanonicalHeaderKey(name))
	}
	return RoutePolicy{
		Route: r.Name, Headers: r.headers(), KeyFromBody: r.KeyFromBody,
		UniqueBy: uniqueBy, UniqueOver: uniqueOver, Required: !r.Optional, Policy: string(r.Policy),
		LeaseMs: r.Lease.Milliseconds(), RetentionMs: r.Retention.Milliseconds(), Fingerprint: append(fingerprint, body),
		Keep: r.Keep, Frees: r.Frees, Doubts: r.Doubts,
		MaxBody: r.MaxBody, MaxWaitMs: max(r.MaxWait, 0).Milliseconds(), Scope: r.Scope,
	}
}

func (r Route) options(fingerprint string) ClaimOptions {
	return ClaimOptions{
		Fingerprint: fingerprint, Policy: r.Policy, Lease: r.Lease, Retention: r.Retention, Scope: r.Scope, Ack: r.Ack, Resolve: r.Resolve,
	}
}

// keySpace is the scope of a client's key on a route of this name.
func (r Route) keySpace(name string) string { return cmp.Or(r.Keys, name) }

func (r Route) name(request *http.Request) string {
	switch {
	case r.Name != "":
		return r.Name
	case request.Pattern != "":
		return request.Pattern
	}
	return request.Method + " " + request.URL.Path
}
