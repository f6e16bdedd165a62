package scripts_test

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

var poolKeys = []string{"{p}", "{p}:ends"}

// lease is what worker_acquire is asked with. The zero value of each field means the default beside it.
type lease struct {
	nonce                 string
	ttl                   int64 // an hour
	identity              string
	wantLayout, wantEpoch string
	layout, epoch         string // "41/10/12", "1700000000000"
	bits                  int    // 2
}

func (b *box) acquire(l lease) []string {
	b.Helper()
	if l.ttl == 0 {
		l.ttl = hour
	}
	if l.layout == "" {
		l.layout = "41/10/12"
	}
	if l.epoch == "" {
		l.epoch = "1700000000000"
	}
	if l.bits == 0 {
		l.bits = 2
	}
	return b.run(scripts.WorkerAcquire, poolKeys, l.nonce, l.ttl, l.identity, l.wantLayout, l.wantEpoch, l.layout, l.epoch, l.bits)
}

// grant is a granted lease.
type grant struct {
	nonce, id  string
	from, till int64
	fence      int64
}

// lease acquires and takes the grant apart.
func (b *box) lease(l lease) grant {
	b.Helper()
	reply := b.acquire(l)
	word(b, reply, "granted", 8)
	return grant{l.nonce, reply[1], number(b, reply[2]), number(b, reply[3]), number(b, reply[4])}
}

func (b *box) renew(g grant, ttl any) []string {
	b.Helper()
	return b.run(scripts.WorkerRenew, poolKeys, g.id, g.nonce, g.from, ttl)
}

func (b *box) giveBack(g grant) []string {
	b.Helper()
	return b.run(scripts.WorkerRelease, poolKeys, g.id, g.nonce, g.from)
}

// lapse waits until the server's clock has passed the end of a lease.
func (b *box) lapse(g grant) {
	b.Helper()
	b.until(func() bool { return b.now() >= g.till })
}

func TestGrantNamesItsWindowAndThePool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		reply := b.acquire(lease{nonce: "n1", ttl: 30_000, identity: "host-a"})
		after := b.now()
		word(t, reply, "granted", 8)
		between(t, "not before", number(t, reply[2]), before, after)
		want(t, []string{reply[1], reply[5], reply[6], reply[7], reply[8]}, "0", "30000", reply[2], "41/10/12", "1700000000000")
		if number(t, reply[3]) != number(t, reply[2])+30_000 {
			t.Errorf("the window is %s to %s, want 30 s", reply[2], reply[3])
		}
		fields := b.fields(poolKeys[0])
		incarnation := fields["incarnation"]
		delete(fields, "incarnation")
		for field, want := range map[string]string{
			"layout": "41/10/12", "epoch": "1700000000000", "bits": "2", "ttl": "30000", "count": "1", "cursor": "0", "fence": reply[4], "n:n1": "0",
			"s:0": "n1 " + reply[2] + " " + reply[3] + " " + reply[4] + " h 30000 host-a",
		} {
			if fields[field] != want {
				t.Errorf("field %s is %q, want %q", field, fields[field], want)
			}
			delete(fields, field)
		}
		if len(fields) > 0 || len(incarnation) != 40 {
			t.Errorf("the pool holds also %v and the incarnation %q", fields, incarnation)
		}
		for _, key := range poolKeys {
			if expiry := b.expiry(key); expiry != -1 {
				t.Errorf("%s ends at %d", key, expiry)
			}
		}
	})
}

func TestSameNonceGetsTheSameGrant(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.acquire(lease{nonce: "n1"})
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

func TestSameNonceAfterItsEndTellsThatItHasEnded(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		b.tick()
		want(t, b.giveBack(g), "ok")
		again := b.lease(lease{nonce: "n1"})
		if again.id != g.id || again.from != g.from || again.fence != g.fence || again.till > b.now() {
			t.Errorf("got %+v, want the grant %+v with an end that has passed", again, g)
		}
	})
}

func TestNonceWhoseSlotWasReusedIsANewLease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", bits: 1})
		b.giveBack(first)
		b.lease(lease{nonce: "n2", bits: 1})
		b.tick()
		if g := b.lease(lease{nonce: "n3", bits: 1}); g.id != first.id {
			t.Fatalf("got worker id %s, want that of the released slot %s", g.id, first.id)
		}
		want(t, b.renew(first, ""), "lost")
		want(t, b.giveBack(first), "lost")
		word(t, b.acquire(lease{nonce: "n1", bits: 1}), "exhausted", 1)
		if known := b.fields(poolKeys[0])["n:n1"]; known != "" {
			t.Errorf("the nonce still stands for slot %s", known)
		}
	})
}

func TestRenewMovesTheWindowsEnd(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1", ttl: 2 * minute})
		b.tick()
		renewed := func(ttl any, counts int64) {
			t.Helper()
			before := b.now()
			reply := b.renew(g, ttl)
			after := b.now()
			word(t, reply, "ok", 3)
			between(t, "now", number(t, reply[3]), before, after)
			if till := number(t, reply[1]); till != max(g.till, number(t, reply[3])+counts) || number(t, reply[2]) != counts {
				t.Errorf("renewed by %v: got %q, the window ended at %d", ttl, reply, g.till)
			}
			g.till = number(t, reply[1])
			if score := b.do("ZSCORE", poolKeys[1], g.id); score != reply[1] {
				t.Errorf("the index says %v, the reply %s", score, reply[1])
			}
		}
		renewed("", 2*minute)   // what it was granted with
		renewed(hour, hour)     // a longer one
		renewed("", hour)       // which is remembered
		renewed(minute, minute) // a shorter one does not shorten the window
		renewed("", minute)
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
				want(t, b.renew(other, minute), "lost")
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
		b.lapse(g)
		before := b.look(poolKeys...)
		want(t, b.renew(g, hour), "lost") // though nobody took its slot
		want(t, b.giveBack(g), "lost")
		b.same(before)
	})
}

func TestReleaseEndsTheLeaseOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		b.tick()
		from := b.now()
		want(t, b.giveBack(g), "ok")
		slot := b.run(scripts.WorkerGet, poolKeys[:1], 0, 1)[7]
		end := number(t, b.do("ZSCORE", poolKeys[1], "0").(string))
		between(t, "the window's end", end, from, b.now())
		before := b.look(poolKeys...)
		b.tick()
		want(t, b.giveBack(g), "ok")
		want(t, b.renew(g, hour), "lost")
		b.same(before)
		if again := b.run(scripts.WorkerGet, poolKeys[:1], 0, 1)[7]; again != slot {
			t.Errorf("the record was %q and is %q", slot, again)
		}
	})
}

func TestPoolKeepsItsLayoutAndEpoch(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.acquire(lease{nonce: "n1", wantLayout: "41/5/5/12"}), "layout", "41/10/12", "1700000000000") // a new pool would not have it either
		if kind := b.look(poolKeys[0])[poolKeys[0]].kind; kind != "none" {
			t.Errorf("the refused request made a %s", kind)
		}
		b.lease(lease{nonce: "n1"})
		before := b.look(poolKeys...)
		for name, l := range map[string]lease{
			"layout":            {wantLayout: "41/5/5/12", layout: "41/5/5/12"},
			"epoch":             {wantEpoch: "1", epoch: "1"},
			"epoch and layout":  {wantLayout: "x", wantEpoch: "1", layout: "x", epoch: "1"},
			"right layout only": {wantLayout: "41/10/12", wantEpoch: "1700000000001"},
			"a known nonce":     {nonce: "n1", wantLayout: "x"},
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				want(t, b.acquire(l), "layout", "41/10/12", "1700000000000")
				b.same(before)
			})
		}
		// Who asks for none, or for the pool's, gets the pool's, whatever a new pool would have had.
		for nonce, l := range map[string]lease{"n2": {layout: "x", epoch: "1", bits: 20}, "n3": {wantLayout: "41/10/12", wantEpoch: "1700000000000"}} {
			l.nonce = nonce
			reply := b.acquire(l)
			word(t, reply, "granted", 8)
			want(t, reply[7:], "41/10/12", "1700000000000")
		}
		if bits := b.fields(poolKeys[0])["bits"]; bits != "2" {
			t.Errorf("the pool has %s bits now", bits)
		}
	})
}

func TestWorkerGetShowsAPageOfTheRing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		page := func(from, n int) []string { return b.run(scripts.WorkerGet, poolKeys[:1], from, n) }
		want(t, page(0, 10), "unknown")
		for _, nonce := range []string{"n1", "n2", "n3"} {
			b.lease(lease{nonce: nonce, ttl: minute})
		}
		fields := b.fields(poolKeys[0])
		records := []string{fields["s:0"], fields["s:1"], fields["s:2"]}
		before := b.look(poolKeys...)
		for _, row := range []struct {
			from, n int
			records []string
		}{
			{0, 10, records},
			{0, 3, records},
			{0, 2, records[:2]},
			{1, 1, records[1:2]},
			{2, 4096, records[2:]},
			{3, 10, nil},
			{1000, 10, nil},
		} {
			reply := page(row.from, row.n)
			between(t, "now", number(t, reply[6]), b.now()-patience.Milliseconds(), b.now())
			reply[6] = "now"
			want(t, reply, append([]string{"ok", "41/10/12", "1700000000000", "2", "60000", "3", "now"}, row.records...)...)
		}
		b.same(before)
		delete(before, poolKeys[1])
		b.do("HDEL", poolKeys[0], "s:1") // a record that is lost leaves its place empty
		if reply := page(0, 3); !slices.Equal(reply[7:], []string{records[0], "", records[2]}) {
			t.Errorf("got %q", reply[7:])
		}
	})
}
