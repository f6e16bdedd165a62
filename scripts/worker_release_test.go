package scripts_test

import (
	"fmt"
	"testing"
)

func TestReleaseEndsTheLeaseOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1", identity: "ann"})
		b.tick()
		from := b.now()
		reply := b.giveBack(g)
		word(t, reply, "ok", 2)
		end := number(t, reply[1])
		between(t, "the window's end", end, from, b.now())
		want(t, b.record("0"), "n1", fmt.Sprint(g.from), reply[1], fmt.Sprint(g.fence), "r", "ann")
		before := b.look(poolKeys...)
		b.tick()
		again := b.giveBack(g)
		want(t, again[:2], "ok", reply[1])
		want(t, b.releaseUsed(g, g.till, 0)[:2], "ok", reply[1]) // what it says now comes too late
		want(t, b.renew(g, hour), "lost")
		want(t, b.prove(g.proof()), "lost")
		b.same(before)
		b.sound()
	})
}

// used is when the next window begins, counted from the moment of the release, or from the window's
// start or end.
func TestNextWindowBeginsBehindTheLastTimestampUsed(t *testing.T) {
	for name, row := range map[string]struct {
		used  func(g grant, now int64) any
		ahead int64
		next  func(g grant, now int64) int64
	}{
		"told, before now":          {func(_ grant, now int64) any { return now - 1000 }, 0, func(_ grant, now int64) int64 { return now - 1000 }},
		"told, ahead of now":        {func(_ grant, now int64) any { return now + 5000 }, 0, func(_ grant, now int64) int64 { return now + 5000 }},
		"told, nothing was used":    {func(g grant, _ int64) any { return g.from }, 0, func(g grant, _ int64) int64 { return g.from }},
		"told, before the window":   {func(g grant, _ int64) any { return g.from - 9 }, 0, func(g grant, _ int64) int64 { return g.from }},
		"told, all of the window":   {func(g grant, _ int64) any { return g.till }, 0, func(g grant, _ int64) int64 { return g.till }},
		"told, more than it had":    {func(g grant, _ int64) any { return g.till + 9 }, 0, func(g grant, _ int64) int64 { return g.till }},
		"told, and so ahead or not": {func(_ grant, now int64) any { return now + 5000 }, minute, func(_ grant, now int64) int64 { return now + 5000 }},
		"not told":                  {func(grant, int64) any { return "" }, 0, func(_ grant, now int64) int64 { return now }},
		"not told, ahead of now":    {func(grant, int64) any { return "" }, minute, func(_ grant, now int64) int64 { return now + minute }},
		"not told, far ahead":       {func(grant, int64) any { return "" }, 2 * hour, func(g grant, _ int64) int64 { return g.till }},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.lease(lease{nonce: "other", bits: 1})
				g := b.lease(lease{nonce: "n1", bits: 1})
				b.pass(minute)
				g = g.past(minute)
				asked := b.now()
				reply := b.releaseUsed(g, row.used(g, asked), row.ahead)
				word(t, reply, "ok", 2)
				now := number(t, reply[2])
				low, high := row.next(g, asked), row.next(g, now)
				between(t, "the window's end", number(t, reply[1]), low, high)
				b.sound()
				next := b.lease(lease{nonce: "n2", bits: 1}) // at once
				if next.id != g.id || next.from != max(number(t, reply[1]), next.from) {
					t.Errorf("leased after a release: got %+v, want the id of %+v, from %s on at the earliest", next, g, reply[1])
				}
				if number(t, reply[1]) > b.now() && next.from != number(t, reply[1]) {
					t.Errorf("leased after a release that ends later: %+v begins elsewhere than at %s", next, reply[1])
				}
				b.sound()
			})
		})
	}
}

// A client that notices a loss waits for ttl + skew. No window may end later than that, however
// late it begins: see TestLossAfterLateWindows.
func TestWindowEndsAtMostOneTTLFromNow(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for i := range 10 {
			reply := b.acquire(lease{nonce: fmt.Sprint(i), identity: "ann"})
			word(t, reply, "granted", 11)
			g, now := taken(t, lease{nonce: fmt.Sprint(i)}, reply), number(t, reply[6])
			if g.till > max(g.from, now+hour) || g.from > g.till {
				t.Fatalf("grant %d at %d is %+v", i, now, g)
			}
			word(t, b.releaseUsed(g, g.from+(g.till-g.from)/2, 0), "ok", 2)
		}
		b.sound()
	})
}

// A holder that has stamped ahead of the clock gives its id back, the next one gets a window that
// begins later, and then everything is lost.
func TestLossAfterLateWindows(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const skew = 1000
		ask := lease{newPools: "wait", skew: skew, bits: 1}
		b.create(ask)
		ask.nonce = "n1"
		first := b.lease(ask)
		word(t, b.releaseUsed(first, first.till-10, 0), "ok", 2)
		ask.nonce, ask.identity = "n2", "" // the id that was never used
		b.lease(ask)
		ask.nonce = "n3"
		late := b.lease(ask)
		if late.id != first.id || late.from != first.till-10 {
			t.Fatalf("leased after a release: got %+v, want the id of %+v, from 10 ms before its end on", late, first)
		}
		b.do("FLUSHALL")
		ask.nonce = "n4"
		word(t, b.acquire(ask), "quarantined", 3)
		if end := number(t, b.head()["quarantine"]); end < late.till+skew {
			t.Errorf("ids are granted again from %d on, and %s can be in use until %d", end, late.id, late.till)
		}
	})
}
