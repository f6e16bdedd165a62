package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

// fill leases every slot of a ring of two bits for an hour.
func (b *box) fill() []grant {
	b.Helper()
	var grants []grant
	for i := range 4 {
		g := b.lease(lease{nonce: "n" + strconv.Itoa(i)})
		if g.id != strconv.Itoa(i) {
			b.Fatalf("grant %d is worker id %s", i, g.id)
		}
		grants = append(grants, g)
	}
	return grants
}

// free releases a lease, and waits so that the next release is later.
func (b *box) free(g grant) {
	b.Helper()
	b.tick()
	want(b, b.giveBack(g), "ok")
	b.tick()
}

// exhausted fails the test unless the next request must wait until the given moment.
func (b *box) exhausted(until int64) {
	b.Helper()
	before := b.now()
	reply := b.acquire(lease{nonce: "one-too-many"})
	word(b, reply, "exhausted", 1)
	between(b, "the wait", number(b, reply[1]), until-b.now(), until-before)
}

func TestSlotsThatWereNeverUsedComeFirst(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.free(b.lease(lease{nonce: "a"}))
		for _, id := range []string{"1", "2", "3"} { // and not 0, though it is free
			if g := b.lease(lease{nonce: "b" + id}); g.id != id {
				t.Errorf("got worker id %s, want %s", g.id, id)
			}
		}
		if g := b.lease(lease{nonce: "c"}); g.id != "0" {
			t.Errorf("once around the ring: got worker id %s, want 0", g.id)
		}
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
			if g.id != id {
				t.Errorf("got worker id %s, want %s", g.id, id)
			}
			if old := grants[number(t, id)]; g.from <= old.from || g.fence <= old.fence {
				t.Errorf("%+v follows %+v", g, old)
			}
		}
	})
}

func TestReleasedSlotWaitsForItsTurnBehindLapsedOnes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		short := b.lease(lease{nonce: "short", ttl: 100})
		long := b.lease(lease{nonce: "long"})
		b.lease(lease{nonce: "c"})
		b.lease(lease{nonce: "d"})
		b.lapse(short)
		b.free(long)
		if g := b.lease(lease{nonce: "e"}); g.id != short.id {
			t.Errorf("got worker id %s, want %s, which has been free for longer", g.id, short.id)
		}
		if g := b.lease(lease{nonce: "f"}); g.id != long.id {
			t.Errorf("got worker id %s, want %s", g.id, long.id)
		}
	})
}

func TestFullRingTellsHowLongToWait(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.lease(lease{nonce: "a", ttl: 3 * minute})
		soonest := b.lease(lease{nonce: "b", ttl: 2 * minute})
		b.lease(lease{nonce: "c", ttl: 4 * minute})
		b.lease(lease{nonce: "d", ttl: 5 * minute})
		before := b.look(poolKeys...)
		b.exhausted(soonest.till)
		b.exhausted(soonest.till)
		b.same(before)
		renewed := b.renew(soonest, hour)
		b.exhausted(b.lease(lease{nonce: "a"}).till)
		if number(t, renewed[1]) <= soonest.till {
			t.Errorf("renewed to %s", renewed[1])
		}
	})
}

func TestFullRingGrantsAgainWhenTheFirstLeaseEnds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		short := b.lease(lease{nonce: "a", ttl: 150})
		for _, nonce := range []string{"b", "c", "d"} {
			b.lease(lease{nonce: nonce})
		}
		var reply []string
		b.until(func() bool {
			reply = b.acquire(lease{nonce: "e"})
			return reply[0] == "granted"
		})
		if reply[1] != short.id || number(t, reply[2]) < short.till || number(t, reply[6]) < short.till {
			t.Errorf("got %q, want worker id %s from %d on, and not earlier", reply, short.id, short.till)
		}
	})
}

// Whatever the order of grants, renewals, releases and lapses: windows of one slot never overlap, fences rise, and a full ring says so.
func TestNoTwoWindowsOfASlotOverlap(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const slots = 8
		random := rand.New(rand.NewPCG(1, 2))
		var held []grant
		ends := map[string]int64{} // of each slot's last window, as far as anybody was told
		fence, granted, full := int64(0), 0, 0
		for i := range 600 {
			switch action := random.IntN(10); {
			case action < 6:
				ttl := int64(100 + random.IntN(200))
				if random.IntN(2) == 0 {
					ttl = hour
				}
				nonce := fmt.Sprint("n", i)
				reply := b.acquire(lease{nonce: nonce, ttl: ttl, bits: 3})
				if reply[0] == "exhausted" {
					full++
					now, open := b.now(), 0
					for _, end := range ends {
						if end > now-patience.Milliseconds() { // it was open when the script ran, if not now
							open++
						}
					}
					if open < slots {
						t.Fatalf("exhausted with %d of %d slots open", open, slots)
					}
					continue
				}
				g := grant{nonce, reply[1], number(t, reply[2]), number(t, reply[3]), number(t, reply[4])}
				if g.from < ends[g.id] || number(t, reply[6]) < ends[g.id] {
					t.Fatalf("%+v begins before the slot's last window ended, %d", g, ends[g.id])
				}
				if g.fence <= fence {
					t.Fatalf("%+v after fence %d", g, fence)
				}
				granted++
				fence, ends[g.id] = g.fence, g.till
				held = append(held, g)
			case len(held) > 0:
				at := random.IntN(len(held))
				g := held[at]
				if action < 8 {
					if reply := b.renew(g, 100+random.IntN(200)); reply[0] == "ok" {
						ends[g.id] = number(t, reply[1])
					}
					continue
				}
				held = append(held[:at], held[at+1:]...)
				if b.giveBack(g)[0] == "ok" {
					ends[g.id] = number(t, b.do("ZSCORE", poolKeys[1], g.id).(string))
				}
			}
		}
		if granted < 2*slots || full == 0 {
			t.Errorf("%d grants and %d refusals: the test did not go around the ring", granted, full)
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
				b.do("DEL", poolKeys[0], poolKeys[1])
				grants := b.fill()
				pool, index := b.look(poolKeys[0]), b.look(poolKeys[1])
				lose()
				b.exhausted(grants[0].till)
				b.same(pool)
				b.same(index)

				b.free(grants[3])
				b.free(grants[1])
				lose()
				if g := b.lease(lease{nonce: "next"}); g.id != "3" {
					t.Errorf("got worker id %s, want 3, which has been free longest", g.id)
				}
				if g := b.lease(lease{nonce: "after"}); g.id != "1" {
					t.Errorf("got worker id %s, want 1", g.id)
				}
				b.exhausted(grants[0].till)
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
		if g := b.lease(lease{nonce: "e"}); g.id != first.id {
			t.Errorf("got worker id %s, want %s", g.id, first.id)
		}
		word(t, b.acquire(lease{nonce: "f"}), "exhausted", 1)
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
	})
}

func TestRingOfTwentyBitsBeginsAtZero(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for i := range 5 {
			if g := b.lease(lease{nonce: fmt.Sprint("n", i), bits: 20}); g.id != strconv.Itoa(i) {
				t.Errorf("grant %d is worker id %s", i, g.id)
			}
		}
		if fields := b.fields(poolKeys[0]); fields["bits"] != "20" || fields["count"] != "5" || fields["cursor"] != "4" {
			t.Errorf("the pool's head is %v", fields)
		}
		// Near its end the ids still count by whole numbers.
		b.do("HSET", poolKeys[0], "count", 1<<20-1)
		if g := b.lease(lease{nonce: "last", bits: 20}); g.id != "1048575" {
			t.Errorf("the last slot is worker id %s, want 1048575", g.id)
		}
		page := b.run(scripts.WorkerGet, poolKeys[:1], 1<<20-1, 10)
		if len(page) != 8 || !strings.HasPrefix(page[7], "last ") {
			t.Errorf("the last page is %q", page)
		}
	})
}
