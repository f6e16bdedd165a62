package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var (
	lockKeys = []string{"lock:{l}", "lock:{l}:fence", "lock:{l}:queue", "lock:{l}:waiters", "lock:{l}:holders", "lock:{l}:marker"}
	listKey  = []string{"locks:{names}"}
)

// ask is one lock_enter. The zero fields mean what is behind them.
type ask struct {
	token    string // one letter, made 22 long
	mode     string // x
	permits  int64  // 1
	capacity int    // 0
	ttl      int64  // an hour
	look     int64  // 1
	inbox    string // does not wait
	patience int64  // an hour
	window   int64  // a minute
	counts   string // "0": as if a process listened
	span     int    // 0: no state is ever in doubt
}

func tokenOf(letter string) string { return strings.Repeat(letter, 22)[:22] }

func (a ask) args() []any {
	def := func(n, other int64) int64 {
		if n == 0 {
			return other
		}
		return n
	}
	mode, counts := a.mode, a.counts
	if mode == "" {
		mode = "x"
	}
	if counts == "" {
		counts = "0"
	}
	ttl := def(a.ttl, hour)
	return []any{
		tokenOf(a.token), "owner-" + a.token, mode, ttl, ttl + minute, a.inbox, def(a.permits, 1), a.capacity, terms(def(a.patience, hour), def(a.window, minute), counts, a.span), def(a.look, 1),
	}
}

// keys are the lock's, with the marker if state can be in doubt.
func (a ask) keys() []string {
	if a.span == 0 {
		return lockKeys[:5]
	}
	return lockKeys
}

func terms(patience, window int64, counts string, span int) string {
	return fmt.Sprint(patience, " ", window, " ", counts, " ", span)
}

// enter asks for the lock as its users do: redislock's part of an exclusive lock is a SET NX with
// the lease.
func (b *box) enter(a ask) []string {
	b.Helper()
	args := a.args()
	if a.mode == "" {
		b.do("SET", lockKeys[0], tokenOf(a.token)+"owner-"+a.token, "NX", "PX", args[3])
		if value, ok := b.do("GET", lockKeys[0]).(string); ok && strings.HasPrefix(value, tokenOf(a.token)) {
			args = append(args, "OK")
		}
	}
	return b.run(scripts.LockEnter, a.keys(), args...)
}

// hold must be granted, and returns the fence.
func (b *box) hold(a ask) int64 {
	b.Helper()
	reply := b.enter(a)
	word(b, reply, "granted", 3)
	return number(b, reply[1])
}

func (b *box) leave(token string, args ...any) []string {
	b.Helper()
	if len(args) == 0 {
		args = []any{"", terms(hour, minute, "0", 0)}
	}
	return b.run(scripts.LockLeave, lockKeys, append([]any{tokenOf(token)}, args...)...)
}

func (b *box) left(token string) {
	b.Helper()
	if reply := b.leave(token); len(reply) != 1 || !slices.Contains([]string{"left", "free", "place"}, reply[0]) {
		b.Fatalf("%s: got %q, want left, free or place", lastAsked(b), reply)
	}
}

// heirs checks to whom of the caller's process a lock was passed on, and returns their fences.
func heirs(t testing.TB, reply []string, tokens ...string) (fences []int64) {
	t.Helper()
	word(t, reply, "free", 1+2*len(tokens))
	for i, token := range tokens {
		want(t, reply[2*i+2:2*i+3], tokenOf(token))
		fences = append(fences, number(t, reply[2*i+3]))
	}
	return fences
}

func (b *box) noKeys() {
	b.Helper()
	b.do("DEL", lockKeys[1])
	if n := b.do("DBSIZE").(int64); n != 0 {
		b.Fatalf("%d keys are left: %v", n, b.do("KEYS", "*"))
	}
}

func TestLockHasOneExclusiveHolder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.enter(ask{token: "a", ttl: minute})
		word(t, first, "granted", 3)
		between(t, "the lock's expiry", b.expiry(lockKeys[0])-number(t, first[3]), minute-slack, minute+slack)
		between(t, "the fence's expiry", b.expiry(lockKeys[1])-number(t, first[3]), 2*minute-slack, 2*minute+slack)
		again := b.enter(ask{token: "a"})
		want(t, again[:3], first[:3]...)
		between(t, "the lock's expiry", b.expiry(lockKeys[0])-number(t, again[3]), hour-slack, hour+slack)
		before := b.look(lockKeys...)
		refused := b.enter(ask{token: "b"})
		word(t, refused, "held", 4)
		want(t, refused[:2], "held", first[2])
		between(t, "left", number(t, refused[2]), hour-slack, hour)
		for _, mode := range []string{"s", "p"} {
			word(t, b.enter(ask{token: "b", mode: mode, capacity: 2}), "held", 4)
		}
		b.same(before)
		want(t, b.leave("b"), "gone")
		b.left("a")
		want(t, b.leave("a"), "gone")
		if next := b.hold(ask{token: "b"}); next <= number(t, first[1]) {
			t.Errorf("fence %d after %s", next, first[1])
		}
		b.left("b")
		b.noKeys()
	})
}

func TestQueueOfALockIsServedInOrder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		rises := rising(t)
		rises(b.hold(ask{token: "a"}))
		for i, token := range []string{"b", "c", "d"} {
			for range 2 { // asking again keeps the place
				reply := b.enter(ask{token: token, inbox: "in-" + token})
				word(t, reply, "waiting", 3)
				want(t, reply[:2], "waiting", fmt.Sprint(i))
			}
		}
		word(t, b.enter(ask{token: "e"}), "held", 4)
		b.left("c") // a waiter that goes
		b.left("a")
		between(t, "the claim window", b.expiry(lockKeys[0])-b.now(), minute-slack, minute)
		word(t, b.enter(ask{token: "d", inbox: "in-d"}), "waiting", 3)
		rises(b.hold(ask{token: "b", inbox: "in-b"})) // claims
		between(t, "the claimed lease", b.expiry(lockKeys[0])-b.now(), hour-slack, hour)
		// of the same process: told, not published, and for the whole ttl
		heirs(t, b.leave("b", "in-d", terms(hour, minute, "0", 0)), "d")
		between(t, "the heir's lease", b.expiry(lockKeys[0])-b.now(), hour-slack, hour)
		rises(b.hold(ask{token: "d"}))
		b.left("d")
		b.noKeys()
	})
}

func TestFreeLockWithAQueueIsNotForNewcomers(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		b.enter(ask{token: "b", inbox: "in-b"})
		b.do("DEL", lockKeys[0]) // ended
		word(t, b.enter(ask{token: "c"}), "held", 4)
		expect.Contains(t, "GET of the lock whose holder has gone and for which b waits", fmt.Sprint(b.do("GET", lockKeys[0])), tokenOf("b"))
	})
}

// A waiter for which no process listens is set aside where Redis can tell, and so are those of a
// process that has let a claim window pass; one that has not asked for too long is dropped.
func TestWaitersWhoDoNotAnswerAreNotWaitedFor(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		b.enter(ask{token: "b", inbox: "nobody"})
		b.leave("a", "", terms(hour, minute, "1", 0))
		b.hold(ask{token: "c", counts: "1"}) // b is passed over, and keeps its place
		b.enter(ask{token: "z", inbox: "in"})
		want(t, b.enter(ask{token: "b", inbox: "nobody"})[:2], "waiting", "0")
		b.left("b")
		b.left("z")

		b.enter(ask{token: "d", inbox: "in"})
		b.enter(ask{token: "e", inbox: "in"})
		b.endsIn(lockKeys[3], "d", 4, -1)
		heirs(t, b.leave("c", "in", terms(hour, minute, "0", 0)), "e")
		b.left("e")
		b.noKeys()

		b.hold(ask{token: "f"})
		for _, token := range []string{"g", "h", "i"} {
			b.enter(ask{token: token, inbox: "dead"})
		}
		b.enter(ask{token: "j", inbox: "alive"})
		b.tick()
		b.left("f")
		b.do("DEL", lockKeys[0]) // g has let its window pass
		b.hold(ask{token: "j", inbox: "alive"})
		// j holds it, and none is in line
		want(t, b.run(scripts.LockGet, lockKeys[:5], 10, 10)[5:7], "1", "0")
		b.enter(ask{token: "k", inbox: "alive"})
		// asked again, they have the places that they had
		for i, token := range []string{"i", "h", "g"} {
			want(t, b.enter(ask{token: token, inbox: "dead"})[:2], "waiting", "0")
			want(t, b.run(scripts.LockGet, lockKeys[:5], 10, 10)[6:7], fmt.Sprint(i+2))
		}
	})
}

// endsIn makes the lease of a joint holder, or the place of a waiter, end so many milliseconds from
// now: the word of its record that says when, in the hash of those.
func (b *box) endsIn(hash, token string, word int, ms int64) {
	b.Helper()
	record := strings.Fields(b.fields(hash)[tokenOf(token)])
	record[word] = fmt.Sprint(b.now() + ms)
	b.do("HSET", hash, tokenOf(token), strings.Join(record, " "))
}

// A reader that has claimed its lock, and whose lease ends, has let no window pass: others of its
// process keep their places.
func TestLeaseThatEndsIsNoWindowThatPassed(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		b.enter(ask{token: "b", mode: "s", inbox: "in"})
		b.enter(ask{token: "c", inbox: "in"})
		b.enter(ask{token: "d", inbox: "other"})
		b.tick()
		b.left("a")
		b.hold(ask{token: "b", mode: "s", ttl: 100})
		expect.Eventually(t, "the reader's lease of 100 ms ends and c holds the lock", func() bool {
			word(t, b.enter(ask{token: "d", inbox: "other"}), "waiting", 3)
			return strings.HasPrefix(fmt.Sprint(b.do("GET", lockKeys[0])), tokenOf("c"))
		})
	})
}

func TestReadersShareALockAndWritersWaitTheirTurn(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		rises := rising(t)
		rises(b.hold(ask{token: "a", mode: "s"}))
		rises(b.hold(ask{token: "b", mode: "s", ttl: minute}))
		again := b.enter(ask{token: "a", mode: "s", ttl: 2 * hour})
		word(t, again, "granted", 3)
		between(t, "the lock's expiry", b.expiry(lockKeys[0])-b.now(), 2*hour-slack, 2*hour)
		word(t, b.enter(ask{token: "w"}), "held", 4)
		b.enter(ask{token: "w", inbox: "in"})
		word(t, b.enter(ask{token: "c", mode: "s"}), "held", 4)
		b.enter(ask{token: "c", mode: "s", inbox: "in"})
		b.enter(ask{token: "d", mode: "s", inbox: "in"})
		want(t, b.leave("a"), "left") // b holds it still
		between(t, "the lock's expiry", b.expiry(lockKeys[0])-b.now(), minute-slack, minute)
		heirs(t, b.leave("b", "in", terms(hour, minute, "0", 0)), "w")
		rises(b.hold(ask{token: "w"}))
		passed := heirs(t, b.leave("w", "in", terms(hour, minute, "0", 0)), "c", "d")
		for i, token := range []string{"c", "d"} { // asking gets what was passed on
			fence := b.hold(ask{token: token, mode: "s"})
			rises(fence)
			between(t, "the heir's fence", fence, passed[i], passed[i])
		}
		b.left("c")
		b.left("d")
		b.noKeys()
	})
}

// Each call reads all holders, so that their number is bounded, whatever the permits.
func TestLockThatHasAsManyHoldersAsItCanIsHeld(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const most = 256
		for _, some := range []ask{{mode: "s"}, {mode: "p", capacity: 1_000_000}} {
			for i := range most {
				some.token = fmt.Sprintf("%022d", i)
				b.hold(some)
			}
			b.hold(some) // again
			some.token = "a"
			refused := b.enter(some)
			word(t, refused, "held", 4)
			want(t, refused[4:], "256")
			some.inbox = "in"
			want(t, b.enter(some)[:2], "waiting", "0")
			expect.Equal(t, "HLEN of the holders", b.do("HLEN", lockKeys[4]).(int64), int64(most))
			b.left(fmt.Sprintf("%022d", 7))
			b.hold(some)
			b.do("DEL", lockKeys[0], lockKeys[4])
		}
	})
}

func TestPermitsAreCounted(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a", mode: "p", capacity: 3, permits: 2})
		word(t, b.enter(ask{token: "b", mode: "p", capacity: 3, permits: 2}), "held", 4)
		want(t, b.enter(ask{token: "b", mode: "p", capacity: 4}), "capacity", "3")
		b.hold(ask{token: "b", mode: "p", capacity: 3})
		word(t, b.enter(ask{token: "c", mode: "p", capacity: 3}), "held", 4)
		b.hold(ask{token: "b", mode: "p", capacity: 3, ttl: 100}) // asked again, with a short lease
		expect.Eventually(t, "b's lease of 100 ms ends and its permit is free", func() bool { return b.enter(ask{token: "c", mode: "p", capacity: 3})[0] == "granted" })
		want(t, b.leave("b"), "gone")
		expect.Equal(t, "HLEN of the holders, of which there are two", b.do("HLEN", lockKeys[4]).(int64), 2)
		b.left("a")
		b.left("c")
		b.noKeys()
	})
}

func TestRenewalIsForTheHolderAlone(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		renew := func(token, fence string) []string {
			return b.run(scripts.LockRenew, lockKeys[:5], tokenOf(token), minute, fence)
		}
		for _, mode := range []string{"", "s"} {
			want(t, renew("a", ""), "lost")
			fence := fmt.Sprint(b.hold(ask{token: "a", mode: mode}))
			for _, named := range []string{"", fence} {
				reply := renew("a", named)
				word(t, reply, "ok", 2)
				between(t, "until", number(t, reply[1])-number(t, reply[2]), minute, minute)
				between(t, "the lock's expiry", b.expiry(lockKeys[0])-number(t, reply[2]), minute-slack, minute+slack)
				between(t, "the fence's expiry", b.expiry(lockKeys[1])-number(t, reply[2]), minute, hour+2*minute)
			}
			want(t, renew("b", ""), "lost")
			want(t, renew("a", fence+"0"), "lost")
			b.do("DEL", lockKeys[0]) // ended: never revived
			want(t, renew("a", fence), "lost")
			b.do("FLUSHALL")
		}
	})
}

func TestBreakingTakesTheLockWithALargerFence(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		breaking := func(fence any) []string {
			return b.run(scripts.LockBreak, lockKeys[:5], fence, terms(hour, minute, "0", 0))
		}
		for _, mode := range []string{"", "s"} {
			rises := rising(t)
			want(t, breaking(0), "unknown")
			fence := b.hold(ask{token: "a", mode: mode})
			rises(fence)
			b.enter(ask{token: "b", inbox: "in"})
			want(t, breaking(fence+1), "unknown")
			want(t, breaking(0), "unknown")
			broken := breaking(fence)
			word(t, broken, "broken", 1)
			rises(number(t, broken[1]))
			want(t, b.leave("a"), "gone")
			rises(b.hold(ask{token: "b"}))
			b.left("b")
			b.noKeys()
		}
		b.do("SET", lockKeys[0], "a plain client of redislock", "PX", hour)
		word(t, breaking(0), "broken", 1)
		b.noKeys()
	})
}

// A server whose time is behind, or has just come up to the last fence, mints one after that. The
// last fence is set a little ahead, by another span each time, so that some grants come when the
// time is close to it.
func TestFenceOfAFreeLockIsLargerThanTheLast(t *testing.T) {
	each(t, func(t *testing.T, b *box) { fencesAfterThatAhead(t, b, b.grants()) })
}

func fencesAfterThatAhead(t *testing.T, b *box, grants int) {
	t.Helper()
	const aheadBy = "local now = redis.call('TIME') local last = string.format('%.0f', now[1] * 1000000 + now[2] + ARGV[1]) " +
		"redis.call('SET', KEYS[1], last .. ' 1 0 -') return last"
	for i := range grants {
		ahead := i * thousand / grants
		last := number(t, b.do("EVAL", aheadBy, 1, lockKeys[1], ahead).(string))
		if fence := b.hold(ask{token: "a"}); fence <= last {
			t.Fatalf("after %d, %d µs ahead: got the fence %d, want a larger one", last, ahead, fence)
		}
		b.left("a")
	}
}

// A grant is renewed and broken by its own fence alone. While the last fence is ahead of the clock
// the next one is larger by one, however it is minted.
func TestGrantIsNamedByItsFenceAlone(t *testing.T) {
	const ahead = int64(9_000_000_000_000_000)
	each(t, func(t *testing.T, b *box) {
		hold := func(mode string) int64 {
			b.do("FLUSHALL")
			b.do("SET", lockKeys[1], fmt.Sprint(ahead, " 1 0 -"))
			return b.hold(ask{token: "a", mode: mode})
		}
		breaking := func(fence int64) []string {
			return b.run(scripts.LockBreak, lockKeys[:5], fence, terms(hour, minute, "0", 0))
		}
		for _, mode := range []string{"", "s"} {
			for _, off := range []int64{0, 1, -1} {
				fence := hold(mode) + off
				asked := fmt.Sprintf("a fence that is off by %d, mode %q", off, mode)
				renewed := b.run(scripts.LockRenew, lockKeys[:5], tokenOf("a"), minute, fence)
				expect.Equal(t, "renewed with "+asked, renewed[0] == "ok", off == 0)
				expect.Equal(t, "broken by "+asked, breaking(fence)[0] == "broken", off == 0)
			}
		}
		first := hold("")
		b.enter(ask{token: "b", mode: "s", inbox: "in"})
		b.enter(ask{token: "c", mode: "s", inbox: "in"})
		fences := heirs(t, b.leave("a", "in", terms(hour, minute, "0", 0)), "b", "c")
		expect.Equal(t, "the readers' fences", fences, []int64{first + 1, first + 2})
		b.left("b")
		b.left("c")
		expect.Equal(t, "the next fence", b.hold(ask{token: "d"}), first+3)
	})
}

func TestLockShowsHoldersAndWaitersWithoutTheirTokens(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		show := func(n int) []string { return b.run(scripts.LockGet, lockKeys[:5], n, 10) }
		reply := show(10)
		want(t, append(reply[:1:1], reply[2:]...), "ok", "0", "", "0", "0", "0", "0")
		fence := b.hold(ask{token: "a"})
		b.enter(ask{token: "b", mode: "p", capacity: 4, permits: 2, inbox: "in"})
		b.enter(ask{token: "c", mode: "s", inbox: "in"})
		reply = show(10)
		want(t, append(reply[:1:1], reply[2:8]...), "ok", fmt.Sprint(fence), "x", "0", "1", "2", "0")
		if len(reply) != 11 || !strings.HasSuffix(reply[8], " 1 owner-a") || !strings.HasPrefix(reply[9], "p 2 ") || !strings.HasSuffix(reply[10], " owner-c") {
			t.Errorf("lock_get: got %q, want 11 values: the holder ends in ` 1 owner-a`, the waiters begin with `p 2 ` and end in ` owner-c`", reply)
		}
		if text := strings.Join(reply, " "); strings.Contains(text, "aaa") || strings.Contains(text, "bbb") {
			t.Errorf("a token is shown: %q", reply)
		}
		expect.Equal(t, "the length of lock_get's reply with one waiter at most", len(show(1)), 10)
		b.left("a")
		reply = show(1)
		want(t, reply[3:7], "p", "4", "1", "1")
		b.do("SET", lockKeys[0], "token of another length, and its metadata")
		reply = show(1)
		want(t, reply[3:9], "x", "0", "1", "1", "0", "0 0 0 1 ")
	})
}

func TestNothingIsGrantedWhileLeasesMayBeLost(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const span = int(hour)
		reply := b.enter(ask{token: "a", span: span})
		word(t, reply, "doubt", 1)
		between(t, "wait", number(t, reply[1]), hour-slack, hour)
		word(t, b.enter(ask{token: "b", mode: "s", span: span}), "doubt", 1)
		expect.Equal(t, "EXISTS of the lock that redislock obtained and no caller was granted", b.do("EXISTS", lockKeys[0]).(int64), 0)
		b.doubtEndsIn(100)
		expect.Eventually(t, "a is granted the lock when the doubt ends", func() bool { return b.enter(ask{token: "a", span: span})[0] == "granted" })
		b.enter(ask{token: "w", inbox: "in", span: span})
		b.do("SET", lockKeys[5], "another-life 0")
		// it is held all the same
		word(t, b.enter(ask{token: "a", span: span}), "granted", 3)
		want(t, b.leave("a", "in", terms(hour, minute, "0", span)), "free") // and not handed over
		word(t, b.enter(ask{token: "w", inbox: "in", span: span}), "doubt", 1)
		b.doubtEndsIn(100)
		expect.Eventually(t, "the waiter is granted the lock when the doubt ends", func() bool { return b.enter(ask{token: "w", inbox: "in", span: span})[0] == "granted" })
	})
}

// doubtEndsIn makes the time in which leases may be lost end so many milliseconds from now.
func (b *box) doubtEndsIn(ms int64) {
	b.Helper()
	life, _, _ := strings.Cut(b.do("GET", lockKeys[5]).(string), " ")
	b.do("SET", lockKeys[5], fmt.Sprint(life, " ", b.now()+ms))
}

func TestFencesOfALockRiseEvenIfItsRecordWasLost(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		fencesOfALock(t, b, b.grants())
		b.do("SET", lockKeys[1], "9007199254740000 - 1 -")
		for i, token := range []string{"a", "b", "c"} {
			want := 9007199254740000 + int64(i+1)
			between(t, "the lock's fence", b.hold(ask{token: token}), want, want)
			b.left(token)
		}
	})
}

func fencesOfALock(t *testing.T, b *box, grants int) {
	t.Helper()
	next := rising(t)
	for i := range grants {
		// a token that comes again right away would get the same grant
		token := string(rune('a' + i%2))
		next(b.hold(ask{token: token, mode: []string{"", "s", "p"}[i%3], capacity: i % 3 / 2}))
		b.left(token)
		if i%4 == 0 {
			b.do("DEL", lockKeys[1])
		}
	}
}

func TestNamesOfLocksAreListedForTheirLease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		note := func(name string, life int64) { want(t, b.run(scripts.LockNote, listKey, name, life), "ok") }
		names := func() []string { return b.run(scripts.LockNames, listKey, "0", "", 10) }
		want(t, names(), "ok")
		note("long", hour)
		note("short", 100)
		note("gone", minute)
		note("gone", 0)
		expect.Eventually(t, "the name noted for 100 ms is gone", func() bool { return len(names()) == 3 })
		expect.Equal(t, "the names that are listed", names()[1], "long")
		note("long", minute) // of another holder, who holds it for less
		between(t, "the end of a name that two have noted", number(t, b.do("ZSCORE", listKey[0], "long").(string))-b.now(), hour-slack, hour)
		note("other", minute)
		between(t, "members", b.do("ZCARD", listKey[0]).(int64), 2, 2)
		between(t, "the list's expiry", b.expiry(listKey[0])-b.now(), hour-slack, hour)
		note("long", 0)
		note("other", 0)
		b.noKeys()
	})
}
