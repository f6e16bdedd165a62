package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// fill leases every slot of a ring of two bits for an hour, a second after each other.
func (b *box) fill() []grant {
	b.Helper()
	return b.fillEvery(1000)
}

// fillEvery is fill with another time between the grants.
func (b *box) fillEvery(ms int64) []grant {
	b.Helper()
	var grants []grant
	for i := range 4 {
		g := b.lease(lease{nonce: "n" + strconv.Itoa(i)})
		expect.MustEqual(b, "the leased worker id", g.id, strconv.Itoa(i))
		grants = append(grants, g)
		b.pass(ms)
		for at := range grants {
			grants[at] = grants[at].past(ms)
		}
	}
	return grants
}

// free releases a lease, and waits so that the next release is later.
func (b *box) free(g grant) {
	b.Helper()
	b.tick()
	word(b, b.giveBack(g), "ok", 2)
	b.tick()
}

// exhausted fails the test unless the next request must wait until the given moment.
func (b *box) exhausted(l lease, until int64) {
	b.Helper()
	l.nonce = "one-too-many"
	before := b.now()
	reply := b.acquire(l)
	word(b, reply, "exhausted", 1)
	between(b, "the wait", number(b, reply[1]), until-b.now(), until-before)
}

func TestSlotsThatWereNeverUsedComeFirst(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.free(b.lease(lease{nonce: "a"}))
		for _, id := range []string{"1", "2", "3"} { // and not 0, though it is free
			expect.Equal(t, "the leased worker id", b.lease(lease{nonce: "b" + id}).id, id)
		}
		expect.Equal(t, "the worker id once around the ring", b.lease(lease{nonce: "c"}).id, "0")
		b.sound()
	})
}

func TestSlotThatHasBeenFreeLongestComesNext(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		for _, i := range []int{2, 0, 3, 1} {
			b.free(grants[i])
		}
		for i, id := range []string{"2", "0", "3", "1"} {
			g := b.lease(lease{nonce: fmt.Sprint("second", i)})
			expect.Equal(t, "the leased worker id", g.id, id)
			if old := grants[number(t, id)]; g.from <= old.from || g.fence <= old.fence {
				t.Errorf("%+v follows %+v", g, old)
			}
		}
		b.sound()
	})
}

// A repeat of what freed a slot leaves it its turn.
func TestRepeatsDoNotMoveASlotBack(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		b.free(grants[2])
		b.free(grants[0])
		word(t, b.giveBack(grants[2]), "ok", 2)
		expect.Equal(t, "the worker id that has been free longest", b.lease(lease{nonce: "next"}).id, "2")
	})
}

func TestReleasedSlotWaitsForItsTurnBehindLapsedOnes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fillEvery(10 * minute)
		const later = 25 * minute // the first lease has ended then, and no other
		b.pass(later)
		b.free(grants[2].past(later))
		for i, id := range []string{"0", "2"} {
			expect.Equal(t, "the leased worker id", b.lease(lease{nonce: fmt.Sprint("m", i)}).id, id)
		}
		b.exhausted(lease{}, grants[1].till-later)
	})
}

func TestFullRingTellsHowLongToWait(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		before := b.look(poolKeys...)
		b.exhausted(lease{}, grants[0].till)
		b.exhausted(lease{cooldown: minute}, grants[0].till+minute)
		b.same(before)
		renewed := b.renew(grants[0], "")
		word(t, renewed, "ok", 3)
		b.exhausted(lease{}, grants[1].till)
		b.exhausted(lease{cooldown: 5}, grants[1].till+5)
		b.sound()
	})
}

func TestFullRingGrantsAgainWhenTheFirstLeaseEnds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "a", ttl: 300})
		for _, nonce := range []string{"b", "c", "d"} {
			b.lease(lease{nonce: nonce, ttl: 300})
		}
		var reply []string
		expect.Eventually(t, "the first of the leases of 300 ms ends", func() bool {
			reply = b.acquire(lease{nonce: "e"})
			return reply[0] == "granted"
		})
		if reply[1] != first.id || number(t, reply[2]) < first.till || number(t, reply[6]) < first.till {
			t.Errorf("leased when the first lease ended: got %q, want worker id %s from %d on, and not earlier", reply, first.id, first.till)
		}
	})
}

func TestSlotRestsBehindItsWindowForTheCooldown(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		b.tick()
		freed := number(t, b.giveBack(grants[3])[2])
		b.exhausted(lease{cooldown: minute}, freed+minute)
		b.exhausted(lease{cooldown: hour * 2}, freed+2*hour)
		b.pass(minute)
		expect.Equal(t, "the worker id after the cool-down", b.lease(lease{nonce: "after", cooldown: minute}).id, "3")
		// moved back by a minute, and a minute of rest
		b.exhausted(lease{cooldown: minute}, grants[0].till)
		b.pass(hour - minute)
		b.exhausted(lease{cooldown: hour}, grants[0].till)
		b.exhausted(lease{cooldown: minute}, grants[0].till-hour+minute)
		if g := b.lease(lease{nonce: "no rest"}); g.id != "0" || g.from < grants[0].till-hour {
			t.Errorf("leased without a rest: got %+v, want worker id 0, after its window", g)
		}
	})
}

func TestLostIndexIsRebuiltFromThePool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for name, lose := range map[string]func(){
			"deleted":      func() { b.do("DEL", poolKeys[1]) },
			"a slot lost":  func() { b.do("ZREM", poolKeys[1], "2") },
			"a stray slot": func() { b.do("ZADD", poolKeys[1], 1, "77") },
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", poolKeys[0], poolKeys[1], poolKeys[2])
				grants := b.fill()
				pool, index := b.look(poolKeys[0]), b.look(poolKeys[1])
				lose()
				b.exhausted(lease{}, grants[0].till)
				b.same(pool)
				b.same(index)

				b.free(grants[3])
				b.free(grants[1])
				lose()
				expect.Equal(t, "the worker id that has been free longest", b.lease(lease{nonce: "next"}).id, "3")
				expect.Equal(t, "the worker id after that", b.lease(lease{nonce: "after"}).id, "1")
				b.exhausted(lease{}, grants[0].till)
				b.sound()
			})
		}
	})
}

func TestIndexLostBeforeTheRingIsFullIsRebuiltWhenItIs(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "a"})
		b.lease(lease{nonce: "b"})
		b.do("DEL", poolKeys[1])
		b.free(first)
		b.lease(lease{nonce: "c"})
		b.lease(lease{nonce: "d"})
		expect.Equal(t, "the leased worker id", b.lease(lease{nonce: "e"}).id, first.id)
		word(t, b.acquire(lease{nonce: "f"}), "exhausted", 1)
		b.sound()
	})
}

// A slot that was released with a last timestamp ahead of now can be granted at once, also after
// its index was lost.
func TestRebuiltIndexOffersReleasedSlotsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		word(t, b.releaseUsed(grants[2], b.now()+minute, 0), "ok", 2)
		b.do("DEL", poolKeys[1])
		expect.Equal(t, "the leased worker id", b.lease(lease{nonce: "next"}).id, "2")
	})
}

// What was given back is free, also by a clock that has gone back meanwhile: the window begins
// where the last one ended.
func TestReleasedSlotIsGrantedByAClockThatIsBehind(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		b.free(grants[2])
		b.pass(-minute)
		g := b.lease(lease{nonce: "next"})
		if g.id != "2" || g.from <= b.now() {
			t.Errorf("leased by a clock that is behind: got %+v, want worker id 2 from a later moment on", g)
		}
		b.exhausted(lease{}, g.till)
	})
}

func TestRingOfOneBit(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		var grants []grant
		for _, nonce := range []string{"a", "b"} {
			grants = append(grants, b.lease(lease{nonce: nonce, bits: 1}))
		}
		word(t, b.acquire(lease{nonce: "c", bits: 1}), "exhausted", 1)
		for round := range 4 {
			g := grants[1-round%2]
			b.free(g)
			grants[1-round%2] = b.lease(lease{nonce: fmt.Sprint("r", round), bits: 1})
			if got := grants[1-round%2]; got.id != g.id {
				t.Errorf("got worker id %s, want %s", got.id, g.id)
			}
		}
		b.sound()
	})
}

func TestRingOfTwentyBits(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for i := range 5 {
			expect.Equal(t, "the leased worker id", b.lease(lease{nonce: fmt.Sprint("n", i), bits: 20}).id, strconv.Itoa(i))
		}
		if head := b.head(); head["bits"] != "20" || head["records"] != "5" || head["next"] != "5" {
			t.Errorf("the pool's head is %v", head)
		}
		// What a holder has proven is skipped when the ring comes to it.
		g := grant{nonce: "proven", id: "5", from: b.now() - 1000, till: b.now() + minute, fence: 5, ttl: hour}
		p := g.proof()
		p.bits = 20
		word(t, b.prove(p), "ok", 3)
		expect.Equal(t, "the leased worker id", b.lease(lease{nonce: "next"}).id, "6")
		// Near its end the ids still count by whole numbers, and then it goes around.
		b.setHead("next", 1<<20-1)
		expect.Equal(t, "the worker id of the last slot", b.lease(lease{nonce: "last"}).id, "1048575")
		page := b.run(scripts.WorkerGet, poolKeys[:2], 1<<20-1, 10)
		if len(page) != 13 || !strings.HasPrefix(page[12], "last ") {
			t.Errorf("the last page is %q", page)
		}
		b.free(grant{nonce: "next", id: "6", from: number(t, b.record("6")[1])})
		expect.Equal(t, "the worker id around the ring", b.lease(lease{nonce: "around"}).id, "6")
		b.sound()
	})
}

// A ring whose head was lost counts its slots once, and not again with each refusal. A refusal says
// no more than that of the pool.
func TestFullRingIsCountedOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		grants := b.fill()
		b.do("HDEL", poolKeys[0], "pool")
		word(t, b.acquire(lease{nonce: "n"}), "quarantined", 3)
		b.setHead("quarantine", 0)
		b.exhausted(lease{}, grants[0].till)
		if head := b.head(); head["next"] != "4" || head["layout"] != "" || head["bits"] != "0" {
			t.Errorf("the pool's head is %v", head)
		}
		b.sound()
	})
}
