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
		// a failover
		{Incarnation{ID: "b", Previous: "a", Change: Changed}, true},
		{Incarnation{ID: "b", Change: Same}, false}, //
		// another process was told of it first
		{Incarnation{ID: "c", Change: Same}, true},
		// FLUSHALL: the same server, and nothing in it
		{Incarnation{ID: "c", Change: First}, true},
		{Incarnation{ID: "c", Change: Same}, false}, //
	} {
		expect.Equal(t, fmt.Sprintf("look %d, which finds %+v: the state has changed", i+1, row.found), seen.changed(row.found), row.want)
	}
	var late life
	if !late.changed(Incarnation{ID: "b", Previous: "a", Change: Changed}) {
		t.Error("a change before this process looked for the first time was not told")
	}
}
