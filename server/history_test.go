package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

const historyPath = "/console/api/history"

// sums are those of each series that is not empty.
func sums(told api.History) map[string]uint64 {
	found := map[string]uint64{}
	for name, points := range told.Series {
		for _, n := range points {
			found[name] += n
		}
		if found[name] == 0 {
			delete(found, name)
		}
	}
	return found
}

func TestHistorySaysWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), Dev: true})
	history := func(query string) api.History { return must[api.History](t, s, 200, "GET", historyPath+query, "") }
	expect.Equal(t, "the history of a server that was asked for nothing", sums(history("")), map[string]uint64{})
	s.do(t, "POST", "/incr/orders?by=40", "").wantStatus(t, 200)
	s.do(t, "GET", "/id/uuid?n=3", "").wantStatus(t, 200)
	s.do(t, "GET", "/id/segment/tag?n=2", "").wantStatus(t, 200)
	s.do(t, "GET", "/id/ulid?n=4", "").wantStatus(t, 200)
	s.do(t, "GET", "/id/typeid", "").wantStatus(t, 200)
	for _, status := range []int{200, 429, 429} {
		s.do(t, "POST", "/limit/sms", `{"rate":1,"per_ms":86400000}`).wantStatus(t, status)
	}
	s.do(t, "POST", "/lock/nightly", "").wantStatus(t, 201)
	s.do(t, "POST", "/payments", payment, "Idempotency-Key: k").wantStatus(t, 201)
	s.do(t, "POST", "/payments", payment, "Idempotency-Key: k").wantStatus(t, 201)
	token := s.issue(t, "")
	s.claim(t, token, `{"fingerprint":"f","lease_ms":100}`)
	for s.state(t, token) != "in-doubt" {
		time.Sleep(10 * time.Millisecond)
	}
	s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`).wantStatus(t, 409)
	got := history("")
	expect.Equal(t, "the sums of the history", sums(got), map[string]uint64{
		"counters": 40, "uuids": 8, "allowed": 1, "limited": 2, "segments": 2, "locks": 1, "issued": 1, "claimed": 2, "completed": 1, "replayed": 1, "refused": 1, "in_doubt": 1, "operations_in_doubt": 1,
	})
	expect.Equal(t, "the number of points with n=1", len(history("?n=1").Series["counters"]), 1)
	for _, n := range []string{"0", "721", "x"} {
		checkProblem(t, s.do(t, "GET", historyPath+"?n="+n, ""), api.InvalidRequest)
	}
}

// The hour goes on while no page asks: each point is where it happened.
func TestHistoryIsKeptWithoutAPage(t *testing.T) {
	t.Parallel()
	inBubble(t, server.Config{}, func(t *testing.T, s inside) {
		time.Sleep(time.Second) // between two steps: at the same instant either could come first
		for i := range 4 {
			s.ask("POST", "/payments", payment, fmt.Sprint("Idempotency-Key: k", i))
			time.Sleep(10 * time.Second)
		}
		got := decode[api.History](t, s.ask("GET", historyPath, ""), 200)
		var at []int
		for i, n := range got.Series["completed"] {
			if n > 0 {
				at = append(at, i)
			}
		}
		if len(at) != 4 || at[3]-at[0] != 6 {
			t.Errorf("GET %s: something was completed in steps %v, want four that are two apart", historyPath, at)
		}
		expect.Equal(t, "the history that is asked for again", decode[api.History](t, s.ask("GET", historyPath, ""), 200).Series["completed"], got.Series["completed"])
	})
}
