package scripts_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// life is a pool with all its holders, whatever happens to them. Times are those of the server as
// it is now: when it is told that time has passed, what is noted here is moved into the past, too.
type life struct {
	b      *box
	rt     *rapid.T
	ask    lease
	holder []*stint
	past   map[string][]span // by worker id: all that any process may have stamped
	fence  int64
	count  int
	// how far the clock of the server that is master now is ahead of that of the slowest
	clock  int64
	maimed bool // something was deleted, so the index may know of other slots than the pool
}

// stint is one lease as its holder knows it. Its stamps lie in [from, till) while it is honest.
type stint struct {
	grant
	over bool
}

// shrinking fails the property instead of the whole test, so that a shorter life that fails is
// looked for.
type shrinking struct {
	testing.TB
	rt *rapid.T
}

func (s shrinking) Fatalf(format string, args ...any) { s.rt.Fatalf(format, args...) }
func (s shrinking) Fatal(args ...any)                 { s.rt.Fatal(args...) }

// span is a half-open range of timestamps.
type span struct{ from, till int64 }

const propertySkew = 5 * minute

func (l *life) acquire() {
	l.count++
	ask := l.ask
	ask.nonce = fmt.Sprint("n", l.count)
	ask.identity = rapid.SampledFrom([]string{"", "", "ann", "bob"}).Draw(l.rt, "identity")
	ask.cooldown = rapid.SampledFrom([]int64{0, 0, minute}).Draw(l.rt, "cool-down")
	reply := l.b.acquire(ask)
	if reply[0] != "granted" {
		if reply[0] == "exhausted" && number(l.b, reply[1]) <= 0 {
			l.rt.Fatalf("exhausted, and the wait is %s", reply[1])
		}
		return
	}
	g := taken(l.b, ask, reply)
	if g.fence <= l.fence {
		l.rt.Fatalf("fence %d follows %d", g.fence, l.fence)
	}
	l.fence = g.fence
	if now := number(l.b, reply[6]); g.from < now || g.till > max(now+ask.ttl, g.from) {
		l.rt.Fatalf("at %d the window is %+v", now, g)
	}
	l.holder = append(l.holder, &stint{grant: g})
	if again := taken(l.b, ask, l.b.acquire(ask)); again != g { // the reply was lost
		l.rt.Fatalf("a repeat got %+v instead of %+v", again, g)
	}
}

// pick draws a holder that has not given up; nil if there is none.
func (l *life) pick() *stint {
	open := slices.DeleteFunc(slices.Clone(l.holder), func(s *stint) bool { return s.over })
	if len(open) == 0 {
		return nil
	}
	return rapid.SampledFrom(open).Draw(l.rt, "holder")
}

func (l *life) renew() {
	s := l.pick()
	if s == nil {
		return
	}
	p := s.proof()
	p.skew, p.bits = propertySkew, l.ask.bits
	if rapid.IntRange(0, 3).Draw(l.rt, "tells nothing") == 0 {
		p.till = ""
	}
	switch reply := l.b.prove(p); reply[0] {
	case "ok":
		till := number(l.b, reply[1])
		if till < s.till {
			l.rt.Fatalf("renewed to %d, and it was %+v", till, s)
		}
		s.till = till
	case "lost":
		s.over = true
	default:
		l.rt.Fatalf("%s: got %q, want ok or lost", lastAsked(l.b), reply)
	}
}

// release gives a lease back. Its last stamp lies somewhere in its window, and no further ahead of
// its holder's clock than a minute. That clock may be the fastest of all servers' clocks.
func (l *life) release() {
	s := l.pick()
	if s == nil {
		return
	}
	s.over = true
	ahead := propertySkew - l.clock + minute
	used := min(s.till, max(s.from, l.b.now()+rapid.Int64Range(-hour, ahead).Draw(l.rt, "used")))
	var told any = used
	if rapid.Bool().Draw(l.rt, "does not tell") {
		told = ""
	}
	if reply := l.b.releaseUsed(s.grant, told, propertySkew+minute); reply[0] == "ok" {
		if till := number(l.b, reply[1]); till < used {
			l.rt.Fatalf("released to %d, and %d was used", till, used)
		}
		s.till = used
	}
}

// lapse lets time pass for all processes.
func (l *life) lapse() {
	l.shift(rapid.Int64Range(0, l.ask.ttl*3/2).Draw(l.rt, "passes"))
}

func (l *life) shift(ms int64) {
	l.b.pass(ms)
	for _, s := range l.holder {
		s.grant = s.past(ms)
	}
}

// failover is another master with the same records, whose clock differs.
func (l *life) failover() {
	if l.readable() {
		l.b.setHead("incarnation", "before")
	}
	l.otherClock()
}

// readable reports whether the pool has a head that is not spoilt.
func (l *life) readable() bool {
	head, _ := l.b.do("HGET", poolKeys[0], "pool").(string)
	return len(strings.Fields(head)) == len(headParts)
}

func (l *life) otherClock() {
	clock := rapid.Int64Range(0, propertySkew).Draw(l.rt, "clock")
	l.shift(clock - l.clock)
	l.clock = clock
}

func (l *life) lose() {
	l.maimed = true
	switch rapid.IntRange(0, 7).Draw(l.rt, "loss") {
	case 0:
		l.b.do("FLUSHALL")
		l.otherClock()
	case 1:
		l.b.do("DEL", poolKeys[0])
	case 2:
		l.b.do("DEL", poolKeys[1])
	case 3:
		l.b.do("DEL", poolKeys[2])
	case 4:
		l.b.do("HDEL", poolKeys[0], "pool")
	case 5:
		if l.readable() {
			l.b.spoil(rapid.SampledFrom(headParts).Draw(l.rt, "part"), rapid.SampledFrom([]string{"", "two words"}).Draw(l.rt, "instead"))
		}
	default:
		id := rapid.IntRange(0, 1<<l.ask.bits-1).Draw(l.rt, "slot")
		l.b.do("HDEL", poolKeys[0], fmt.Sprint("s:", id))
	}
}

// check asks of the whole life: no two windows of an id overlap.
func (l *life) check() {
	l.past = map[string][]span{}
	for _, s := range l.holder {
		if s.from < s.till {
			l.past[s.id] = append(l.past[s.id], span{s.from, s.till})
		}
	}
	for id, spans := range l.past {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for i := 1; i < len(spans); i++ {
			if spans[i].from < spans[i-1].till {
				l.rt.Fatalf("worker id %s: windows %+v and %+v overlap", id, spans[i-1], spans[i])
			}
		}
	}
	l.checkIndex()
}

// checkIndex asks of the pool: its head counts its records, and the index agrees with them.
func (l *life) checkIndex() {
	if !l.maimed {
		if l.b.do("HLEN", poolKeys[0]) != int64(0) {
			l.b.soundBy(l.b.now() + propertySkew)
		}
		return
	}
	fields := l.b.fields(poolKeys[0])
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		id, is := strings.CutPrefix(field, "s:")
		if score, indexed := l.b.do("ZSCORE", poolKeys[1], id).(string); is && indexed {
			if words := strings.SplitN(fields[field], " ", 6); words[4] == "h" && words[2] != score {
				l.rt.Fatalf("slot %s is %q and ends at %s in the index", id, words, score)
			}
		}
	}
}

// Whatever the order of grants, renewals, releases, lapses, failovers and losses: no two windows of
// an id overlap, and fences rise.
func TestNoTwoWindowsOfAnIDOverlap(t *testing.T) {
	each(t, noTwoWindowsOverlap)
}

func noTwoWindowsOverlap(t *testing.T, b *box) {
	t.Helper()
	granted := 0
	rapid.Check(t, func(rt *rapid.T) {
		b.do("FLUSHALL")
		l := &life{b: &box{shrinking{t, rt}, b.kind, b.client, b.facts}, rt: rt,
			ask: lease{newPools: "wait", skew: propertySkew, bits: rapid.IntRange(1, 3).Draw(rt, "bits"), ttl: hour}}
		b.create(l.ask)
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(*rapid.T) { l.acquire() }, "acquire too": func(*rapid.T) { l.acquire() },
			"renew": func(*rapid.T) { l.renew() }, "renew too": func(*rapid.T) { l.renew() },
			"release": func(*rapid.T) { l.release() }, "lapse": func(*rapid.T) { l.lapse() },
			"failover": func(*rapid.T) { l.failover() }, "lose": func(*rapid.T) { l.lose() },
			"": func(*rapid.T) { l.check() },
		})
		granted += len(l.holder)
	})
	if granted < 100 {
		t.Errorf("%d grants: the test tells nothing", granted)
	}
}
