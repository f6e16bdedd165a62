package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// follow serves log to one reader of all names, and returns the kind and the data of each message.
func follow(t *testing.T, log *events.Log, principal, lastID string) (next func() (kind, data string)) {
	t.Helper()
	reader := access.Caller{Role: access.Read, Principal: principal}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		renew := func() (access.Caller, bool) { return reader, true }
		if log.Serve(w, r, events.Subscriber{Reader: reader, Renew: renew}) != nil {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	expect.NoError(t, "http.NewRequestWithContext", err)
	request.Header.Set("Last-Event-ID", lastID)
	response, err := server.Client().Do(request)
	expect.NoError(t, "following the events", err)
	t.Cleanup(func() { response.Body.Close() })
	expect.MustEqual(t, "following the events: status", response.StatusCode, http.StatusOK)
	lines := bufio.NewScanner(response.Body)
	return func() (kind, data string) {
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "event":
				kind = value
			case "data":
				return kind, value
			default:
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return "", ""
	}
}

func TestSubscriberThatWasAwayHearsHowManyEventsItMissed(t *testing.T) {
	log := events.New()
	for i := range 1030 {
		log.Add(api.Event{Kind: events.CounterSet, Name: fmt.Sprint("c", i)})
	}
	next := follow(t, log, "p", "of-another-process.3")
	kind, data := next()
	hello := api.EventHello{}
	if err := json.Unmarshal([]byte(data), &hello); err != nil || kind != "hello" || hello.Tally[events.CounterSet] != 1030 {
		t.Errorf("the first message: got %s %s (%v), want hello with a tally of 1030", kind, data, err)
	}
	kind, data = next()
	expect.Equal(t, "the message after a position of another process", kind+" "+data, "missed {}")
	log.AddOnce(api.Event{Kind: events.LockLost, Name: "l"})
	log.AddOnce(api.Event{Kind: events.LockLost, Name: "l"})
	log.Add(api.Event{Kind: events.LockBroken, Name: "l"})
	for _, want := range []string{events.LockLost, events.LockBroken} {
		event := api.Event{}
		if _, data = next(); json.Unmarshal([]byte(data), &event) != nil || event.Kind != want {
			t.Errorf("the next event: got %s, want one of kind %s: a repeat is only counted", data, want)
		}
	}
}

func TestPrincipalWithTheMostStreamsGivesItsOldestUpForAnother(t *testing.T) {
	log := events.New()
	var streams []func() (kind, data string)
	for range 64 {
		streams = append(streams, follow(t, log, "many", ""))
	}
	expect.Equal(t, "subscribers", log.Subscribers(), 64)
	follow(t, log, "one", "")
	next := streams[0]
	next() // hello
	kind, data := next()
	expect.Equal(t, "the oldest stream's message", kind+" "+data, `end {"reason":"crowded"}`)
}
