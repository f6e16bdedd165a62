package health

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
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
		// a failover that lost nothing
		{Incarnation{ID: "b", Change: Continued}, false},
		{Incarnation{ID: "b", Change: Same}, false}, //
		// one of which another process was told first
		{Incarnation{ID: "c", Change: Same}, false}, //
		// a failover that may have lost something
		{Incarnation{ID: "d", Losses: 1, Change: Changed}, true},
		{Incarnation{ID: "d", Losses: 1, Change: Same}, false}, //
		// one of which another process was told first
		{Incarnation{ID: "e", Losses: 2, Change: Same}, true}, //
		// and one that was followed by one that lost nothing
		{Incarnation{ID: "g", Losses: 3, Change: Continued}, true},
		// FLUSHALL: the same server, and nothing in it
		{Incarnation{ID: "g", Change: First}, true},
		{Incarnation{ID: "g", Change: Same}, false}, //
	} {
		expect.Equal(t, fmt.Sprintf("look %d, which finds %+v: the state has changed", i+1, row.found), seen.changed(row.found), row.want)
	}
	var late life
	if !late.changed(Incarnation{ID: "b", Losses: 1, Change: Changed}) {
		t.Error("a change before this process looked for the first time was not told")
	}
}
