package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

func TestGrantNamesItsWindowAndThePool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		reply := b.acquire(lease{nonce: "n1", ttl: 30_000, identity: "host-a", datacenter: 7})
		after := b.now()
		word(t, reply, "granted", 11)
		between(t, "not before", number(t, reply[2]), before, after)
		want(t, append([]string{reply[1]}, reply[5:]...), "0", "30000", reply[2], "41/10/12", "1700000000000", "7", "2", "1")
		expect.Equal(t, "the window's end, 30 s after its start", number(t, reply[3]), number(t, reply[2])+30_000)
		wanted := map[string]string{
			"pool": "41/10/12 1700000000000 7 2 30000 1 1 " + reply[4] + " " + b.word() + "missing: 0 0",
			"s:0":  "n1 " + reply[2] + " " + reply[3] + " " + reply[4] + " h host-a",
		}
		if fields := b.fields(poolKeys[0]); !maps.Equal(fields, wanted) {
			t.Errorf("the pool is %v, want %v", fields, wanted)
		}
		if names := b.fields(poolKeys[2]); !maps.Equal(names, map[string]string{"n:n1": "0", "i:host-a": "0"}) {
			t.Errorf("the names are %v", names)
		}
		b.sound()
		for _, key := range poolKeys {
			expect.Equal(t, "the end of "+key, b.expiry(key), -1)
		}
		second := b.acquire(lease{nonce: "n2", datacenter: 3, ttl: minute, bits: 10})
		want(t, append([]string{second[1], second[5]}, second[8:]...), "1", "30000", "1700000000000", "7", "2", "0")
	})
}

func TestSameNonceGetsTheSameGrant(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.acquire(lease{nonce: "n1"})
		first[11] = "0" // it is the pool's first grant no more
		b.acquire(lease{nonce: "n2"})
		before := b.look(poolKeys...)
		for _, again := range []lease{{nonce: "n1"}, {nonce: "n1", ttl: 2 * hour, identity: "other"}} {
			reply := b.acquire(again)
			reply[6] = first[6] // the server's time moves on
			want(t, reply, first...)
		}
		b.same(before)
	})
}

// A repeat that comes when the lease has ended is a new lease: its start, which goes with the
// nonce, names another grant.
func TestSameNonceAfterItsEndIsANewLease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for name, end := range map[string]func(g grant) grant{
			"released": func(g grant) grant {
				word(t, b.giveBack(g), "ok", 2)
				return g
			},
			"lapsed": func(g grant) grant {
				b.pass(2 * hour)
				return g.past(2 * hour)
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				first := b.lease(lease{nonce: name})
				b.tick()
				old := end(first)
				b.tick()
				again := b.lease(lease{nonce: name})
				if again.id == old.id || again.from <= old.from || again.fence <= old.fence || again.till <= b.now() {
					t.Errorf("asked again after the lease has ended: got %+v, want another id, a later window and a larger fence than %+v", again, old)
				}
				want(t, b.renew(old, ""), "lost")
				want(t, b.prove(old.proof()), "lost")
				word(t, b.renew(again, ""), "ok", 3)
				b.sound()
			})
		}
	})
}

func TestNonceWhoseSlotWasReusedIsANewLease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", bits: 1})
		b.giveBack(first)
		b.lease(lease{nonce: "n2", bits: 1})
		b.tick()
		expect.MustEqual(t, "the worker id of the released slot", b.lease(lease{nonce: "n3", bits: 1}).id, first.id)
		want(t, b.renew(first, ""), "lost")
		want(t, b.giveBack(first), "lost")
		word(t, b.acquire(lease{nonce: "n1", bits: 1}), "exhausted", 1)
		expect.Equal(t, "the slot that the nonce stands for", b.fields(poolKeys[2])["n:n1"], "")
	})
}

// Without the names a repeat is not known as one. It gets another id then, and the old slot takes
// nothing from it when it is granted anew.
func TestLostNamesCostARepeatASlotAndNoMore(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", bits: 1, identity: "ann"})
		b.do("DEL", poolKeys[2])
		second := b.lease(lease{nonce: "n1", bits: 1, identity: "ann"})
		if first.id == second.id {
			t.Fatalf("both grants are worker id %s", first.id)
		}
		b.free(first)
		expect.Equal(t, "the leased worker id", b.lease(lease{nonce: "n2", bits: 1}).id, first.id)
		if again := b.lease(lease{nonce: "n1", bits: 1}); again.id != second.id || again.from != second.from {
			t.Errorf("the repeat got %+v, want %+v", again, second)
		}
		if names := b.fields(poolKeys[2]); !maps.Equal(names, map[string]string{"n:n1": "1", "n:n2": "0", "i:ann": "1"}) {
			t.Errorf("the names are %v", names)
		}
		b.sound()
	})
}

func TestRenewMovesTheWindowsEnd(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		for _, ttl := range []any{"", hour} {
			b.pass(minute)
			g = g.past(minute)
			before := b.now()
			reply := b.renew(g, ttl)
			after := b.now()
			word(t, reply, "ok", 3)
			between(t, "now", number(t, reply[3]), before, after)
			if till := number(t, reply[1]); till != number(t, reply[3])+hour || till <= g.till || reply[2] != "3600000" {
				t.Errorf("renewed by %v: got %q, the window ended at %d", ttl, reply, g.till)
			}
			g.till = number(t, reply[1])
			want(t, b.record("0"), "n1", fmt.Sprint(g.from), reply[1], fmt.Sprint(g.fence), "h", "")
			b.sound()
		}
	})
}

func TestRenewNeverMakesAWindowShorter(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		b.pass(-minute) // the server's clock was set back
		reply := b.renew(g.past(-minute), "")
		word(t, reply, "ok", 3)
		expect.Equal(t, "the window's end", number(t, reply[1]), g.till+minute)
	})
}

func TestRenewAndReleaseNeedTheVeryGrant(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		b.lease(lease{nonce: "n2"})
		before := b.look(poolKeys...)
		for name, other := range map[string]grant{
			"nonce":                 {id: g.id, nonce: "n3", from: g.from},
			"nonce of another slot": {id: g.id, nonce: "n2", from: g.from},
			"start":                 {id: g.id, nonce: g.nonce, from: g.from + 1},
			"slot":                  {id: "1", nonce: g.nonce, from: g.from},
			"slot never used":       {id: "3", nonce: g.nonce, from: g.from},
			"slot of no pool":       {id: "99", nonce: g.nonce, from: g.from},
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				want(t, b.renew(other, ""), "lost")
				want(t, b.renew(other, hour), "lost")
				want(t, b.giveBack(other), "lost")
				b.same(before)
			})
		}
		word(t, b.renew(g, ""), "ok", 3)
	})
}

func TestEndedLeaseIsNeverRevived(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1", ttl: 100})
		expect.Eventually(t, "the lease of 100 ms ends", func() bool { return b.now() >= g.till })
		before := b.look(poolKeys...)
		want(t, b.renew(g, "100"), "lost") // though its slot was not taken
		want(t, b.prove(g.proof()), "lost")
		want(t, b.giveBack(g), "lost")
		b.same(before)
	})
}

// pools are requests that a pool of lease's defaults refuses.
var pools = map[string]lease{
	"layout":            {wantLayout: "41/5/5/12", layout: "41/5/5/12"},
	"epoch":             {wantEpoch: "1", epoch: "1"},
	"datacenter":        {wantDatacenter: "1", datacenter: 1},
	"ttl":               {wantTTL: "60000", ttl: minute},
	"longer ttl":        {wantTTL: "7200000", ttl: 2 * hour},
	"all of them":       {wantLayout: "x", wantEpoch: "1", wantDatacenter: "1", wantTTL: "1", layout: "x", epoch: "1", datacenter: 1, ttl: 1},
	"right layout only": {wantLayout: "41/10/12", wantEpoch: "1700000000001", epoch: "1700000000001"},
	"a known nonce":     {nonce: "n1", wantLayout: "x", layout: "x"},
}

func TestPoolKeepsWhatItIs(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		refusal := []string{"layout", "41/10/12", "1700000000000", "0", "3600000", "0"}
		// a new pool would not have it either
		want(t, b.acquire(lease{nonce: "n1", wantLayout: "41/5/5/12"}), append(refusal[:5:5], "1")...)
		expect.Equal(t, "what the refused request made", b.look(poolKeys[0])[poolKeys[0]].kind, "none")
		g := b.lease(lease{nonce: "n1"})
		before := b.look(poolKeys...)
		for name, l := range pools {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				want(t, b.acquire(l), refusal...)
				b.same(before)
			})
		}
		want(t, b.renew(g, minute), refusal...)
		want(t, b.renew(g, 2*hour), refusal...)
		b.same(before)
		// Who asks for none, or for the pool's, gets the pool's, whatever a new pool would have
		// had.
		for nonce, l := range map[string]lease{
			"n2": {layout: "x", epoch: "1", bits: 20, datacenter: 9, ttl: minute},
			"n3": {wantLayout: "41/10/12", wantEpoch: "1700000000000", wantDatacenter: "0", wantTTL: "3600000"},
		} {
			l.nonce = nonce
			reply := b.acquire(l)
			word(t, reply, "granted", 11)
			want(t, append([]string{reply[5]}, reply[7:]...), "3600000", "41/10/12", "1700000000000", "0", "2", "0")
		}
	})
}

func TestWorkerGetShowsAPageOfTheRing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		page := func(from, n int) []string { return b.run(scripts.WorkerGet, poolKeys[:2], from, n) }
		want(t, page(0, 10), "unknown")
		for _, nonce := range []string{"n1", "n2", "n3"} {
			b.lease(lease{nonce: nonce, ttl: minute, identity: "host-" + nonce})
		}
		fields := b.fields(poolKeys[0])
		records := []string{fields["s:0"], fields["s:1"], fields["s:2"], ""}
		before := b.look(poolKeys...)
		for _, row := range []struct {
			from, n int
			records []string
		}{
			{0, 10, records},
			{0, 3, records[:3]},
			{0, 2, records[:2]},
			{1, 1, records[1:2]},
			{2, 4096, records[2:]},
			{3, 10, records[3:]},
			{4, 10, nil},
			{1000, 10, nil},
		} {
			reply := page(row.from, row.n)
			between(t, "now", number(t, reply[8]), b.now()-patience.Milliseconds(), b.now())
			reply[8] = "now"
			want(t, reply, append([]string{"ok", "41/10/12", "1700000000000", "0", "2", "60000", "3", "0", "now", "", "3", "0"}, row.records...)...)
		}
		b.same(before)
		// a record that is lost leaves its place empty, and is noticed
		b.do("HDEL", poolKeys[0], "s:1")
		reply := page(0, 3)
		if reply[11] != "1" || !slices.Equal(reply[12:], []string{records[0], "", records[2]}) || reply[6] != "2" || reply[7] != "60000" {
			t.Errorf("worker_get of a page with a lost record: got %q, want the records %q and `` between them, 2 records in all and a wait of 60000", reply, []string{records[0], records[2]})
		}
	})
}

func TestWorkerGetTellsWhatIsLeftOfAQuarantine(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		word(t, b.acquire(lease{nonce: "n1", newPools: "wait"}), "quarantined", 3)
		// it has no layout yet, and waits
		waits := b.run(scripts.WorkerGet, poolKeys[:2], 0, 10)
		word(t, waits, "quarantined", 3)
		if left := number(t, waits[1]); left <= 0 || left > number(t, b.head()["quarantine"]) {
			t.Errorf("worker_get of a pool that waits without a layout: got %q", waits)
		}
		b.do("FLUSHALL")
		want(t, b.run(scripts.WorkerGet, poolKeys[:2], 0, 10), "unknown")
		b.lease(lease{nonce: "n1"})
		b.setHead("incarnation", strings.Repeat("0a", 20))
		reply := b.run(scripts.WorkerGet, poolKeys[:2], 0, 10)
		if reply[7] != "3600000" || reply[9] == "" || reply[11] != "1" {
			t.Errorf("before any process noticed: got %q, want an hour and a reason", reply)
		}
		word(t, b.acquire(lease{nonce: "n2", skew: minute}), "quarantined", 3)
		end := number(t, b.head()["quarantine"])
		reply = b.run(scripts.WorkerGet, poolKeys[:2], 0, 10)
		expect.Equal(t, "the wait that worker_get tells in quarantine", number(t, reply[7]), end-number(t, reply[8]))
		expect.Equal(t, "whether it has begun", reply[11], "0")
		noted := b.head()["incarnation"]
		// and before any process noticed: the remaining lease is longer than a ttl
		b.setHead("incarnation", "between")
		reply = b.run(scripts.WorkerGet, poolKeys[:2], 0, 10)
		expect.Equal(t, "the wait that worker_get tells when all was lost again", number(t, reply[7]), end-number(t, reply[8]))
		b.setHead("incarnation", noted)
		b.pass(2 * hour)
		if reply = b.run(scripts.WorkerGet, poolKeys[:2], 0, 10); reply[7] != "0" || reply[9] != "" {
			t.Errorf("after its end: got %q", reply)
		}
	})
}
