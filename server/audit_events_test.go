package server_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

// Who did something, and who was refused, hears an admin who may touch all names. Others hear what
// happened to their names, and nothing of who; of refusals nothing, not even of those for their
// names.
func TestEventsTellWhoToAdminsOfAllNamesAlone(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, map[string]access.Record{
		"own reader": {Role: access.Read, Names: access.Names{"orders:*"}}, "own admin": {Role: access.Admin, Names: access.Names{"orders:*"}},
	})
	listeners := map[string]*listening{}
	for _, caller := range []string{"admin", "read", "use", "own reader", "own admin", "foreign admin"} {
		listeners[caller] = g.listen(t, g.bearer(caller)...)
		listeners[caller].until("hello")
	}
	value := int64(7)
	g.do(t, "PUT", "/counter/orders:1", `{"value":7}`).wantStatus(t, 401)
	g.as(t, "own", "PUT", "/counter/orders:1", `{"value":7}`).wantStatus(t, 403)
	g.as(t, "own", "POST", "/incr/bills", "").wantStatus(t, 403)
	g.as(t, "admin", "PUT", "/counter/orders:1", `{"value":7}`).wantStatus(t, 200)
	g.as(t, "admin", "PUT", "/counter/foreign:last", `{"value":7}`).wantStatus(t, 200)
	g.as(t, "admin", "PUT", "/counter/orders:last", `{"value":7}`).wantStatus(t, 200)
	by := func(caller, route string, code api.Code) api.EventBy {
		who := api.EventBy{Address: "127.0.0.1", Route: route, Code: string(code)}
		if caller != "" {
			who.Principal, who.KeyID = caller, g.keys[caller].ID
		}
		return who
	}
	const set = "PUT /counter/{key}"
	change := func(names ...string) (events []api.Event) {
		for _, name := range names {
			events = append(events, api.Event{Kind: "counter.set", Name: name, Value: &value})
		}
		return events
	}
	for caller, want := range map[string][]api.Event{
		"admin": {
			{Kind: "request.refused", EventBy: by("", set, api.Unauthorized)},
			{Kind: "request.refused", Name: "orders:1", EventBy: by("own", set, api.Forbidden)},
			{Kind: "request.refused", Name: "bills", EventBy: by("own", "POST /incr/{key}", api.Forbidden)},
			{Kind: "counter.set", Name: "orders:1", Value: &value, EventBy: by("admin", set, "")},
			{Kind: "counter.set", Name: "foreign:last", Value: &value, EventBy: by("admin", set, "")},
			{Kind: "counter.set", Name: "orders:last", Value: &value, EventBy: by("admin", set, "")},
		},
		"read":          change("orders:1", "foreign:last", "orders:last"),
		"use":           change("orders:1", "foreign:last", "orders:last"),
		"own reader":    change("orders:1", "orders:last"),
		"own admin":     change("orders:1", "orders:last"),
		"foreign admin": change("foreign:last"),
	} {
		var got []api.Event
		for range want {
			event, _ := listeners[caller].event()
			event.At = api.At(time.Time{})
			got = append(got, event)
		}
		expect.Equal(t, "events that "+caller+" hears of", got, want)
	}
}

// Refusals take no more than their share of the events that are kept.
func TestRefusalsOfAStrangerLeaveTheFeedToOthers(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	l := g.listen(t, g.bearer("admin")...)
	l.until("hello")
	began := time.Now()
	for range 300 {
		g.do(t, "POST", "/incr/k", "").wantStatus(t, 401)
	}
	g.as(t, "admin", "PUT", "/counter/last", `{"value":7}`).wantStatus(t, 200)
	refused := 0
	for event, _ := l.event(); event.Kind != "counter.set"; event, _ = l.event() {
		expect.Equal(t, "the kind of an event before the last", event.Kind, "request.refused")
		refused++
	}
	windows := int(time.Since(began)/(10*time.Second)) + 1
	if refused < 20 || refused > 20*windows {
		t.Errorf("events of 300 refusals: got %d, want 20 to %d", refused, 20*windows)
	}
	for told := (api.EventTally{}); told.Tally["request.refused"] != 300; {
		told = api.EventTally{}
		if data := l.until("tally").data; strictly([]byte(data), &told) != nil {
			t.Fatalf("GET /events: the tally %s", data)
		}
	}
}
