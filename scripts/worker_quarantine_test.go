package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// loss is something that may have happened to a pool with two records.
type loss struct {
	lose    func(b *box)
	records int  // left
	nothing bool // is left
}

// losses are all that is noticed, also under `trust`, but for those that leave nothing at all.
func losses() map[string]loss {
	every := map[string]loss{
		"another incarnation": {func(b *box) { b.setHead("incarnation", strings.Repeat("0a", 20)) }, 2, false},
		"first record":        {func(b *box) { b.do("HDEL", poolKeys[0], "s:0") }, 1, false},
		"second record":       {func(b *box) { b.do("HDEL", poolKeys[0], "s:1") }, 1, false},
		"the head":            {func(b *box) { b.do("HDEL", poolKeys[0], "pool") }, 2, false},
		"all of the head":     {func(b *box) { b.do("HSET", poolKeys[0], "pool", "") }, 2, false},
		"all but the head":    {func(b *box) { b.do("HDEL", poolKeys[0], "s:0", "s:1") }, 0, false},
		"the hash":            {func(b *box) { b.do("DEL", poolKeys[0]) }, 0, false},
		"the hash and index":  {func(b *box) { b.do("DEL", poolKeys[0], poolKeys[1]) }, 0, false},
		"the hash and names":  {func(b *box) { b.do("DEL", poolKeys[0], poolKeys[2]) }, 0, false},
		"all but the records": {func(b *box) {
			b.do("HDEL", poolKeys[0], "pool")
			b.do("DEL", poolKeys[1], poolKeys[2])
		}, 2, false},
		"everything": {func(b *box) { b.do("FLUSHALL") }, 0, true},
	}
	for _, part := range headParts {
		every["no "+part] = loss{func(b *box) { b.spoil(part, "") }, 2, false}
		every["two words for "+part] = loss{func(b *box) { b.spoil(part, "0 0") }, 2, false}
	}
	for _, part := range []string{"bits", "ttl", "records", "next", "fence", "quarantine", "longest"} {
		every["no number for "+part] = loss{func(b *box) { b.spoil(part, "-1") }, 2, false}
	}
	return every
}

// quarantined fails the test unless nothing is granted until the given moment at the earliest, and
// tells the moment.
func (b *box) quarantined(l lease, earliest int64) int64 {
	b.Helper()
	l.nonce = "too-early"
	before := b.now()
	reply := b.acquire(l)
	after := b.now()
	word(b, reply, "quarantined", 3)
	head := b.head()
	end := number(b, head["quarantine"])
	between(b, "the wait", number(b, reply[1]), end-after, end-before)
	if end < earliest {
		b.Fatalf("the quarantine ends at %d, want %d at the earliest", end, earliest)
	}
	if !strings.HasPrefix(head["incarnation"], b.word()) {
		b.Fatalf("the pool notes the incarnation %q", head["incarnation"])
	}
	return end
}

func TestAcquireNoticesEveryLoss(t *testing.T) {
	for name, loss := range losses() {
		for _, newPools := range []string{"wait", "trust"} {
			if loss.nothing && newPools == "trust" {
				continue // an unknown pool is a new one
			}
			t.Run(name+", "+newPools, func(t *testing.T) {
				each(t, func(t *testing.T, b *box) {
					ask := lease{newPools: newPools, skew: minute}
					b.lease(lease{nonce: "n0"})
					b.lease(lease{nonce: "n1"})
					loss.lose(b)
					noticed := b.now()
					end := b.quarantined(ask, noticed+hour+minute)
					between(t, "the quarantine's end", end, noticed+hour+minute, b.now()+hour+minute)
					if fields := b.fields(poolKeys[0]); len(fields) != 1+loss.records || b.head()["records"] != fmt.Sprint(loss.records) {
						t.Errorf("the pool is %v", fields)
					}
					before := b.look(poolKeys...)
					b.quarantined(ask, end)
					b.same(before) // it is noticed once
					b.pass(end - b.now())
					ids := map[string]bool{}
					for i := range 4 {
						ask.nonce = fmt.Sprint("m", i)
						g := b.lease(ask)
						ids[g.id] = true
					}
					expect.Equal(t, "worker ids after the quarantine", len(ids), 4)
					b.sound()
				})
			})
		}
	}
}

func TestRenewNoticesEveryLoss(t *testing.T) {
	for name, loss := range losses() {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.lease(lease{nonce: "n0"})
				g := b.lease(lease{nonce: "n1"})
				loss.lose(b)
				p := g.proof()
				p.skew = 1000
				noticed := b.now()
				reply := b.prove(p)
				word(t, reply, "ok", 3) // it is proven whatever was lost
				want(t, reply, "ok", fmt.Sprint(number(t, reply[3])+hour), fmt.Sprint(hour), reply[3])
				b.quarantined(lease{skew: 1000}, noticed+hour+1000)
				fields := b.fields(poolKeys[0])
				want(t, b.record("1"), "n1", fmt.Sprint(g.from), reply[1], fmt.Sprint(g.fence), "h", "")
				expect.Equal(t, "records that the head counts", b.head()["records"], fmt.Sprint(len(fields)-1))
				if len(fields) == 3 && b.record("0") == nil {
					t.Errorf("the pool is %v", fields)
				}
			})
		})
	}
}

// What holds nothing that the records do not can be lost without harm.
func TestLossOfIndexOrNamesStopsNobody(t *testing.T) {
	for _, key := range poolKeys[1:] {
		t.Run(key, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				g := b.lease(lease{nonce: "n0", identity: "ann"})
				b.do("DEL", key)
				word(t, b.renew(g, ""), "ok", 3)
				next := b.lease(lease{nonce: "n1", identity: "ann", newPools: "wait"})
				expect.Equal(t, "the worker id leased after "+key+" was lost", next.id, "1")
				word(t, b.giveBack(g), "ok", 2)
			})
		})
	}
}

func TestUnknownPoolIsNewOrPerhapsLost(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		noticed := b.now()
		b.quarantined(lease{newPools: "wait", ttl: minute, skew: 7}, noticed+minute+7)
		// once it is known as perhaps lost it stays so
		b.quarantined(lease{newPools: "trust", ttl: minute}, noticed+minute)
		wanted := fmt.Sprintf("- - - 0 60000 0 0 0 %s %s 0", b.word()+"missing:", b.head()["quarantine"])
		if fields := b.fields(poolKeys[0]); len(fields) != 1 || fields["pool"] != wanted {
			t.Errorf("the pool is %v, want %s", fields, wanted)
		}
		b.do("FLUSHALL")
		b.lease(lease{nonce: "n", newPools: "trust"})
	})
}

// Where a pool's own TTL is lost, the longest TTL that any process states bounds its windows.
func TestQuarantineGrowsWithTheLongestTTLToldOfAnUnknownPool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ask := lease{newPools: "wait", skew: 1000}
		ask.ttl = minute
		first := b.quarantined(ask, 0)
		ask.ttl = 3 * minute
		expect.Equal(t, "the quarantine's end with a longer ttl", b.quarantined(ask, 0), first+2*minute)
		ask.ttl = minute
		b.quarantined(ask, first+2*minute)
		// A holder that renews tells it, too, whether it can prove its lease or not.
		p := grant{nonce: "n", id: "0", from: 1, ttl: 4 * minute}.proof()
		p.skew, p.till = 1000, ""
		want(t, b.prove(p), "lost")
		b.quarantined(ask, first+3*minute)
		p.ttl, p.from, p.till, p.fence = 5*minute, b.now()-1, b.now()+4*minute, 1
		word(t, b.prove(p), "ok", 3)
		expect.Equal(t, "the quarantine's end", b.quarantined(ask, 0), first+4*minute)
	})
}

// The TTL of a known pool decides, and not what a caller would give a new one.
func TestNoLossChangesTheTTLOfAKnownPool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0", ttl: minute})
		b.setHead("incarnation", "before")
		noticed := b.now()
		if end := b.quarantined(lease{ttl: hour}, noticed+minute); end > b.now()+2*minute {
			t.Errorf("the quarantine ends %d ms after the loss was noticed, by another's ttl", end-noticed)
		}
		expect.Equal(t, "the pool's ttl", b.head()["ttl"], "60000")
		reply := b.renew(g, minute)
		word(t, reply, "ok", 3)
		want(t, b.acquire(lease{nonce: "n1", wantTTL: "3600000"}), "layout", "41/10/12", "1700000000000", "0", "60000", "0")
	})
}

func TestQuarantineEndsExactlyAndGrantsGoOn(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ask := lease{newPools: "wait", ttl: 200, skew: 50, bits: 1}
		b.create(ask)
		ask.nonce = "n0"
		lost := b.lease(ask)
		ask.nonce = "n1"
		b.lease(ask)
		b.do("HDEL", poolKeys[0], "s:"+lost.id)
		end := b.quarantined(ask, lost.till+50)
		var reply []string
		expect.Eventually(t, "the quarantine of 250 ms ends", func() bool {
			ask.nonce = "n2"
			reply = b.acquire(ask)
			return reply[0] != "quarantined"
		})
		word(t, reply, "granted", 11)
		g := taken(t, ask, reply)
		if g.id != lost.id || g.from < end || g.from < lost.till || g.fence <= lost.fence {
			t.Errorf("the quarantine ended at %d; %+v follows %+v", end, g, lost)
		}
		b.sound()
		// To the millisecond, with the clock moved rather than waited for.
		b.setHead("incarnation", "before")
		ask.ttl, ask.skew = 200, hour
		end = b.quarantined(ask, 0)
		b.pass(end - b.now() - minute)
		b.quarantined(ask, 0)
		b.pass(minute)
		ask.nonce = "n3"
		b.lease(ask)
	})
}

func TestRepeatOfAcquireInQuarantineAndBehindIt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0"})
		b.setHead("incarnation", "before")
		word(t, b.acquire(lease{nonce: "n0"}), "quarantined", 3) // whether it stands is unknown
		b.pass(2 * hour)
		if again := b.lease(lease{nonce: "n0"}); again.id == g.id || again.fence <= g.fence || again.till <= b.now() {
			t.Errorf("a repeat after its lease has ended: got %+v, want another id, a larger fence and an open window; it was %+v", again, g)
		}
		b.lease(lease{nonce: "n1", identity: "ann"})
		b.do("DEL", poolKeys[0])
		word(t, b.acquire(lease{nonce: "n0"}), "quarantined", 3)
		b.pass(2 * hour)
		if g := b.lease(lease{nonce: "n0"}); g.id != "0" || g.till <= b.now() {
			t.Errorf("a repeat of what is lost got %+v, want a new grant", g)
		}
		// One that is kept alive stands after the quarantine as it was granted.
		kept := b.lease(lease{nonce: "n2"})
		b.setHead("incarnation", "before")
		b.quarantined(lease{}, 0)
		word(t, b.renew(kept, ""), "ok", 3)
		b.setHead("quarantine", b.now())
		if again := b.lease(lease{nonce: "n2"}); again.id != kept.id || again.from != kept.from || again.fence != kept.fence {
			t.Errorf("a repeat of a lease that was kept alive: got %+v, want %+v", again, kept)
		}
	})
}

func TestLossAgainBeginsAnotherQuarantine(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.lease(lease{nonce: "n0"})
		b.setHead("incarnation", "before")
		first := b.quarantined(lease{}, 0)
		b.pass(minute)
		b.setHead("incarnation", "between")
		b.quarantined(lease{}, first)
		b.setHead("quarantine", b.now()+9*hour) // nor does it ever get shorter
		b.setHead("incarnation", "behind")
		b.quarantined(lease{}, b.now()+8*hour)
	})
}

func TestReleaseInQuarantineFreesTheSlotForLater(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0", bits: 1})
		b.lease(lease{nonce: "n1", bits: 1})
		b.setHead("incarnation", "before")
		word(t, b.giveBack(g), "ok", 2)
		b.quarantined(lease{}, g.till)
		b.pass(hour)
		expect.Equal(t, "the worker id leased after the quarantine", b.lease(lease{nonce: "n2"}).id, g.id)
		b.sound()
	})
}

// A head that cannot be read says nothing: what is left of it is not what the next grant gets.
func TestPoolWithoutAPartOfItsHeadIsFixedAnew(t *testing.T) {
	for _, part := range headParts {
		t.Run(part, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.lease(lease{nonce: "n0", datacenter: 3})
				b.spoil(part, "")
				want(t, b.run(scripts.WorkerGet, poolKeys[:2], 0, 1), "unknown")
				b.quarantined(lease{}, 0)
				b.pass(hour)
				reply := b.acquire(lease{nonce: "n1", datacenter: 4, epoch: "5", wantDatacenter: "4", wantEpoch: "5"})
				word(t, reply, "granted", 11)
				want(t, append([]string{reply[1]}, reply[7:]...), "1", "41/10/12", "5", "4", "2", "1")
				b.sound()
			})
		})
	}
}
