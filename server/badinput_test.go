package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// bad is a request that must be refused and change nothing. Names in braces stand for what the
// fixture made.
type bad struct {
	call

	code  api.Code
	field string // what the problem names, "" = nothing
	allow string // methods that a 405 lists
	wait  bool   // the answer says how long to wait
}

// badInput is every bad request, by what is bad.
func badInput() map[string][]bad {
	return map[string][]bad{
		"names": badNames(), "paths": badPaths(), "methods": badMethods(), "queries": badQueries(), "documents": badDocuments(), "tokens": badTokenFields(),
		"workers": badWorkerFields(), "ids": badIDs(), "numbers": badNumbers(), "segments": badSegments(), "payments": badPayments(), "headers": badHeaders(),
		"state": badStates(), "sizes": badSizes(), "counters": badCounters(), "limits": badLimits(),
		"lock names": badLockNames(), "lock routes": badLockRoutes(), "lock fields": badLockFields(), "lock queries": badLockQueries(),
		"lock headers": badLockHeaders(), "lock states": badLockStates(),
	}
}

// Every request is sent to a service on the embedded store; one of each kind, to a service on
// Redis.
func TestBadInputIsRefusedWithItsCodeAndChangesNothing(t *testing.T) {
	t.Parallel()
	groups := badInput()
	for name, rows := range groups {
		t.Run("embedded "+name, func(t *testing.T) {
			t.Parallel()
			refuseTogether(t, rows)
		})
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		f := newVictim(t, redisstore.Config{URL: redistest.Start(t).URL()})
		f.put(t, f.store, "zeros", "SET", "007") // miniredis takes them for integers
		f.put(t, f.store, "plus", "SET", "+1")
		rows := badIntegers()
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			rows = append(rows, groups[name]...)
		}
		f.refuseEach(t, f.oneOfEachKind(rows))
	})
}

// victim is a fixture of which everything in the store can be told.
type victim struct {
	*fixture

	store *redisstore.Store
	same  cmp.Option // for two dumps of the store
}

func newVictim(t *testing.T, config redisstore.Config) *victim {
	t.Helper()
	store := storetest.Open(t, config)
	v := &victim{fixture: newFixtureOf(t, store, server.Config{MaxBody: lowLimit}), store: store, same: sameEnd(0)}
	if config.URL == "" { // embedded
		v.same = sameEnd(1000)
	}
	v.made["{held}"] = v.lock(t, "held", `{"ttl_ms":3600000}`)
	v.made["{other}"] = v.lock(t, "other", `{"ttl_ms":3600000,"permits":2}`)
	v.refill()

	before := dumpOf(t, store)
	checkProblem(t, v.s.do(t, "POST", "/payments", `{"amount":0}`, "Idempotency-Key: bad"), "invalid-request")
	expect.Equal(t, "what a payment that failed its check has left", dumpOf(t, store), before, v.same)
	return v
}

// state is all that the store holds.
func (v *victim) state(t testing.TB) map[string]string {
	t.Helper()
	return dumpOf(t, v.store)
}

// refuseTogether checks that a service on the embedded store refuses requests of which none changes
// anything. The store is looked at before the first and after the last. If it differs, all are sent
// again to another service, where it is looked at after each, to find which of them changed it.
func refuseTogether(t *testing.T, rows []bad) {
	t.Helper()
	v := newVictim(t, redisstore.Config{})
	state, seen := v.state(t), v.seenThroughAPI(t)
	for _, row := range rows {
		v.refuse(t, row)
	}
	expect.Equal(t, "what the service tells after all of these requests", v.seenThroughAPI(t), seen)
	if after := v.state(t); !cmp.Equal(after, state, v.same) {
		expect.Equal(t, "the store after all of these requests", after, state, v.same)
		newVictim(t, redisstore.Config{}).refuseEach(t, rows)
	}
}

// refuseEach checks that a service refuses requests, and looks at the store after each.
func (v *victim) refuseEach(t *testing.T, rows []bad) {
	t.Helper()
	before := v.state(t)
	for _, row := range rows {
		v.refuse(t, row)
		after := v.state(t)
		expect.Equal(t, "the store after "+v.filled(row.call).String(), after, before, v.same)
		before = after
	}
}

// oneOfEachKind picks the first request of each code and field on each route.
func (v *victim) oneOfEachKind(rows []bad) (picked []bad) {
	known := map[string]bool{}
	for _, row := range rows {
		kind := fmt.Sprintf("%s %s %s", v.routeOf(row.call), row.code, row.field)
		if !known[kind] {
			known[kind] = true
			picked = append(picked, row)
		}
	}
	return picked
}

// routeOf is the method and the route of a request, such as GET /incr/{key}, or its method alone if
// no route has its path.
func (v *victim) routeOf(c call) string {
	path, _, _ := strings.Cut(c.path, "?")
	segments := strings.Split(path, "/")
	for _, route := range v.s.server.Routes() {
		if fits(strings.Split(route.Path, "/"), segments) {
			return c.method + " " + route.Path
		}
	}
	return c.method
}

// fits reports whether a path is of a route, of which a part in braces stands for any.
func fits(route, path []string) bool {
	return slices.EqualFunc(route, path, func(part, segment string) bool {
		return strings.HasPrefix(part, "{") || part == segment
	})
}

func (v *victim) refuse(t *testing.T, row bad) {
	t.Helper()
	a, err := v.s.send(t.Context(), v.filled(row.call))
	expect.NoError(t, row.String(), err)
	if row.method == "HEAD" {
		a.wantStatus(t, api.NewProblem(row.code, "").Status)
		a.wantBody(t, "")
	} else if problem := checkProblem(t, a, row.code); problem.Field != row.field {
		t.Errorf("%v; want field %q", a, row.field)
	}
	for method := range strings.FieldsSeq(row.allow) {
		expect.Contains(t, a.asked+": header Allow", a.header.Get("Allow"), method)
	}
	if row.wait != (a.header.Get("Retry-After") != "") {
		t.Errorf("%v; got Retry-After %q, want one: %v", a, a.header.Get("Retry-After"), row.wait)
	}
}
