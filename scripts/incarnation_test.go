package scripts_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

var markerKey = []string{"{m}"}

// replid is what the server itself calls its incarnation.
func (b *box) replid() string {
	b.Helper()
	found := regexp.MustCompile(`master_replid:([0-9a-f]{40})`).FindStringSubmatch(b.do("INFO", "replication").(string))
	if found == nil {
		b.Fatal("INFO replication names no master_replid")
	}
	return found[1]
}

func TestIncarnationIsNewThenSame(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid())
		before := b.look(markerKey...)
		for range 3 {
			want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid())
		}
		b.same(before)
		if expiry := b.expiry(markerKey[0]); expiry != -1 {
			t.Errorf("the marker ends at %d", expiry)
		}
	})
}

func TestIncarnationIsNewAgainAfterFlushAll(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid())
		b.do("FLUSHALL")
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid())
		want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid())
	})
}

func TestChangeOfIncarnationIsToldOnceWithThePreviousOne(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		previous := strings.Repeat("0a", 20)
		b.do("SET", markerKey[0], previous)
		want(t, b.run(scripts.Incarnation, markerKey), "changed", b.replid(), previous)
		want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid())
	})
}

func TestIncarnationOfARealServerChangesWithItsReplid(t *testing.T) {
	b := open(t, "redis")
	first := b.run(scripts.Incarnation, markerKey)
	b.do("DEBUG", "CHANGE-REPL-ID")
	second := b.run(scripts.Incarnation, markerKey)
	want(t, second, "changed", b.replid(), first[1])
}
