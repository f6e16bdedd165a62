//go:build check

package locks

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A peer's processes that wait for good are replaced and counted, wherever they are waited for: as
// the field begins, when a fault looks for a holder or strikes behind a link, and at the end.
func TestPeerThatWaitsForGoodIsReplaced(t *testing.T) {
	t.Parallel()
	f := newField(t, "", deaf, 0)
	if f.Patience == 0 {
		t.Fatal("got a field that waits for a peer without end")
	}
	f.Patience = 200 * time.Millisecond
	f.Fill(2)
	expect.Equal(t, "processes replaced as the field began", f.Replaced, 2)
	for _, kind := range chaostest.Named(kinds, "holder killed", "links swallow what is sent for longer than a lease") {
		f.play(kind)
	}
	f.Finish()
	if n := f.waited["2"]; n < 4 {
		t.Errorf("%d are said to have waited in the first scene, want two before the fault and two after", n)
	}
	expect.Equal(t, "processes after those behind a link have ended", len(f.Processes), 2)
	for _, row := range f.rows(&histories{}, nil) {
		if row.Promise != evidence.Locks || row.Waited < 4 {
			t.Errorf("got %+v, want a row that says how many waited for good", row)
		}
	}
}
