package health

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
)

func TestIncarnationsTellOfEveryNewLifeOnce(t *testing.T) {
	var seen life
	for i, row := range []struct {
		found Incarnation
		want  bool
	}{
		// the first use
		{Incarnation{ID: "a", Change: First}, false},
		{Incarnation{ID: "a", Change: Same}, false}, //
		// a failover that may have lost something
		{Incarnation{ID: "b", Losses: 1, Change: Changed}, true},
		{Incarnation{ID: "b", Losses: 1, Change: Same}, false}, //
		// one that has lost nothing
		{Incarnation{ID: "c", Losses: 1, Change: Continued}, false},
		// another process has noticed a loss first
		{Incarnation{ID: "d", Losses: 2, Change: Same}, true},
		// FLUSHALL: the same server, and nothing in it
		{Incarnation{ID: "d", Change: First}, true},
		{Incarnation{ID: "d", Change: Same}, false}, //
	} {
		expect.Equal(t, fmt.Sprintf("look %d, which finds %+v: the state has changed", i+1, row.found), seen.changed(row.found), row.want)
	}
	var late life
	if !late.changed(Incarnation{ID: "b", Losses: 1, Change: Changed}) {
		t.Error("a change before this process looked for the first time was not told")
	}
}
