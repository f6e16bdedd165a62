package health

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestIncarnationsTellOfEveryNewLifeOnce(t *testing.T) {
	var seen life
	for i, row := range []struct {
		found redisstore.Incarnation
		want  bool
	}{
		// the first use
		{redisstore.Incarnation{ID: "a", Change: redisstore.First}, false},
		{redisstore.Incarnation{ID: "a", Change: redisstore.Same}, false}, //
		// a failover
		{redisstore.Incarnation{ID: "b", Previous: "a", Change: redisstore.Changed}, true},
		{redisstore.Incarnation{ID: "b", Change: redisstore.Same}, false}, //
		// another process was told of it first
		{redisstore.Incarnation{ID: "c", Change: redisstore.Same}, true},
		// FLUSHALL: the same server, and nothing in it
		{redisstore.Incarnation{ID: "c", Change: redisstore.First}, true},
		{redisstore.Incarnation{ID: "c", Change: redisstore.Same}, false}, //
	} {
		expect.Equal(t, fmt.Sprintf("look %d, which finds %+v: the state has changed", i+1, row.found), seen.changed(row.found), row.want)
	}
	var late life
	if !late.changed(redisstore.Incarnation{ID: "b", Previous: "a", Change: redisstore.Changed}) {
		t.Error("a change before this process looked for the first time was not told")
	}
}
