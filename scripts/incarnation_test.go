package scripts_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
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

// word is what a script notes of this server for a caller that knows nothing, without the reason.
func (b *box) word() string {
	b.Helper()
	field := func(section, name string) string {
		text, err := b.client.Do(b.Context(), "INFO", section).Text()
		if err != nil {
			return ""
		}
		_, rest, _ := strings.Cut(text, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	run := field("server", "run_id")
	return b.replid() + ":" + run[:min(len(run), 16)] + ":" + field("stats", "total_net_repl_input_bytes") + "::10:"
}

func TestIncarnationIsNewThenSame(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid(), "0")
		before := b.look(markerKey...)
		for range 3 {
			want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid(), "0")
		}
		b.same(before)
		expect.Equal(t, "the marker's end", b.expiry(markerKey[0]), -1)
	})
}

func TestIncarnationIsNewAgainAfterFlushAll(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid(), "0")
		b.do("FLUSHALL")
		want(t, b.run(scripts.Incarnation, markerKey), "new", b.replid(), "0")
		want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid(), "0")
	})
}

func TestChangeOfIncarnationIsReportedOnceAndCounted(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", markerKey[0], strings.Repeat("0a", 20))
		want(t, b.run(scripts.Incarnation, markerKey), "changed", b.replid(), "1")
		want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid(), "1")
	})
}

func TestServerThatOnlyRenamesItsHistoryContinues(t *testing.T) {
	b := open(t, "redis")
	b.run(scripts.Incarnation, markerKey)
	b.do("DEBUG", "CHANGE-REPL-ID")
	want(t, b.run(scripts.Incarnation, markerKey), "continued", b.replid(), "0")
}
