package gateway

import (
	"encoding/json"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// readyFrom is what a caller with an address hears of /readyz.
func (s *served) readyFrom(from string) (ready Readiness) {
	s.t.Helper()
	recorder := s.admin("/readyz", "localhost", from)
	if err := json.Unmarshal(recorder.Body.Bytes(), &ready); err != nil {
		s.t.Fatalf("GET /readyz from %s: got %d %q: %v", from, recorder.Code, recorder.Body, err)
	}
	return ready
}

// What a routes file says, routes and names of fields, is for who asks on the same machine.
func TestReadinessTellsOtherMachinesNothingOfTheFile(t *testing.T) {
	s := serve(t, newShop(t, nil).URL, payments, soon)
	s.write("routes: [{match: POST /orders, lease_ms: 1, colour: red}]")
	expect.Eventually(t, "the faults are told here", func() bool { return len(s.readyFrom("127.0.0.1:4711").RoutesFaults) == 2 })
	here, elsewhere := s.readyFrom("[::1]:4711"), s.readyFrom("192.0.2.7:4711")
	want := Readiness{Ready: true, Store: here.Store, Routes: 1, Unmatched: "refuse", Unguarded: 1, UnguardedWideCount: 1, LoadedAt: here.LoadedAt, FaultCount: 2}
	expect.Equal(t, "GET /readyz from another machine", elsewhere, want)
	expect.Equal(t, "GET /readyz from this machine: tells version and incarnation", [2]bool{here.Version != "", here.Incarnation != ""}, [2]bool{true, true})
	s.wantEnd()
}
