package scripts_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// Some waiters' process has died. A message to one of them says so for all, and no later call looks
// at any of them: what a grant costs is counted in commands, those within scripts included.
func TestDeadWaitersCostOneMessage(t *testing.T) {
	t.Parallel()
	b := open(t, "redis")
	const dead, rounds = 2000, 50
	grants := func() (commands map[string]int64) {
		before := b.commands()
		for range rounds {
			b.hold(ask{token: "x", counts: "1"})
			want(t, b.leave("x", "", terms(hour, minute, "1", 0)), "free")
		}
		commands = b.commands()
		for name := range commands {
			commands[name] -= before[name]
		}
		return commands
	}
	total := func(commands map[string]int64) (n int64) {
		for _, calls := range commands {
			n += calls
		}
		return n
	}
	alone := grants()
	b.hold(ask{token: "a"})
	for i := range dead {
		word(t, b.enter(ask{token: fmt.Sprintf("%022d", i), inbox: "dead"}), "waiting", 3)
	}
	b.hold(ask{token: "a"})
	before := b.commands()["publish"]
	want(t, b.leave("a", "", terms(hour, minute, "1", 0)), "free")
	expect.Equal(t, fmt.Sprintf("messages of a release that finds %d waiters of one process dead", dead), b.commands()["publish"]-before, 1)
	beside := grants()
	if total(beside) > 2*total(alone) {
		t.Errorf("commands of %d grants beside %d dead waiters: got %v, want no more than twice %v", rounds, dead, beside, alone)
	}
}

// commands is how often each command has run, within scripts and outside of them.
func (b *box) commands() map[string]int64 {
	b.Helper()
	calls := map[string]int64{}
	for _, found := range regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`).FindAllStringSubmatch(fmt.Sprint(b.do("INFO", "commandstats")), -1) {
		calls[found[1]] = number(b, found[2])
	}
	return calls
}

// As many readers as there can be wait for one lock: what it costs to let one in does not grow with
// them.
func TestReadersThatAreLetInTogetherCostTheSameEach(t *testing.T) {
	t.Parallel()
	b := open(t, "redis")
	cost := func(readers int) (took time.Duration) {
		const all = 4096
		for range all / readers {
			b.hold(ask{token: "a"})
			for i := range readers {
				word(t, b.enter(ask{token: fmt.Sprintf("%022d", i), mode: "s", inbox: "in"}), "waiting", 3)
			}
			before := b.processorTime()
			word(t, b.leave("a", "in", terms(hour, minute, "0", 0)), "free", 1+2*readers)
			took += b.processorTime() - before
			b.do("FLUSHALL")
		}
		return took / all
	}
	few, many := cost(16), cost(256)
	if many > 4*few {
		t.Errorf("processor time of Redis for each reader that is let in: got %v with 256 of them, want at most four times the %v with 16",
			many, few)
	}
}

// processorTime is what the server's main thread has used.
func (b *box) processorTime() (used time.Duration) {
	b.Helper()
	for _, found := range regexp.MustCompile(`used_cpu_\w+_main_thread:(\S+)`).FindAllStringSubmatch(fmt.Sprint(b.do("INFO", "cpu")), -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		expect.Error(b, "the processor time "+found[0], err, nil)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

// A dead writer, or a dead taker of more permits than are free, keeps no newcomer out.
func TestDeadWaiterThatFindsNoRoomBlocksNobody(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range []struct{ holder, dead, newcomer ask }{
			{ask{token: "a", mode: "s"}, ask{token: "w", inbox: "dead"}, ask{token: "r", mode: "s", counts: "1"}},
			{ask{token: "a", mode: "p", capacity: 3}, ask{token: "w", mode: "p", capacity: 3, permits: 3, inbox: "dead"}, ask{token: "r", mode: "p", capacity: 3, counts: "1"}},
		} {
			b.hold(row.holder)
			word(t, b.enter(row.dead), "waiting", 3)
			b.hold(row.newcomer)
			row.dead.counts = "1"
			want(t, b.enter(row.dead)[:2], "waiting", "0") // it lives after all, and has its place
			late := row.newcomer
			late.token, late.counts = "l", "0"
			word(t, b.enter(late), "held", 4)
			b.do("FLUSHALL")
		}
	})
}

// A waiter that has not looked for seven windows, and seven seconds, is passed over also where
// Redis cannot tell that its process is gone; its place is kept for as long as its patience.
func TestSilentWaiterIsPassedOverAndKeepsItsPlace(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a", mode: "s"})
		word(t, b.enter(ask{token: "w", inbox: "silent"}), "waiting", 3)
		b.endsIn(lockKeys[3], "w", 4, hour-7*minute) // it looked seven minutes ago
		b.hold(ask{token: "r", mode: "s"})
		word(t, b.enter(ask{token: "v", inbox: "in"}), "waiting", 3)
		want(t, b.enter(ask{token: "w", inbox: "silent"})[:2], "waiting", "0")
	})
}

// A place that is kept ends with its waiter's patience, whatever other waiters do.
func TestPlaceThatNobodyAsksForIsForgotten(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		word(t, b.enter(ask{token: "b", inbox: "dead", patience: 100}), "waiting", 3)
		b.leave("a", "", terms(100, minute, "1", 0))
		b.hold(ask{token: "c", counts: "1", patience: 100})
		expect.Eventually(t, "the record of b is gone while others wait", func() bool {
			word(t, b.enter(ask{token: "d", inbox: "in"}), "waiting", 3)
			_, there := b.fields(lockKeys[3])[tokenOf("b")]
			return !there
		})
		expect.Equal(t, "ZCARD of the queue", b.do("ZCARD", lockKeys[2]).(int64), 1)
	})
}

// Who was handed the lock and let its window pass is the first again when it asks, and a claim in
// time leaves no place.
func TestHeirThatIsLateIsTheFirstAgain(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, mode := range []string{"", "s"} {
			b.hold(ask{token: "a"})
			for _, token := range []string{"b", "c"} {
				b.enter(ask{token: token, mode: mode, inbox: "in"})
			}
			b.tick()
			b.left("a")
			b.do("DEL", lockKeys[0], lockKeys[4]) // their windows pass
			b.hold(ask{token: "x"})
			b.enter(ask{token: "d", inbox: "in-d"})
			want(t, b.enter(ask{token: "b", mode: mode, inbox: "in"})[:2], "waiting", "0")
			b.left("x")
			b.hold(ask{token: "b", mode: mode, inbox: "in"})
			expect.Equal(t, "score of a waiter that has claimed its lock", b.do("ZSCORE", lockKeys[2], tokenOf("b")), nil)
			b.do("FLUSHALL")
		}
	})
}

// One poll serves an heir that is late and another waiter, while earlier leases have ended: all of
// them hold the lock from then on.
func TestLateHeirHoldsTheLockBesideTheNext(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		some := func(token string, permits int64) ask {
			return ask{token: token, mode: "p", permits: permits, capacity: 3, inbox: "in-" + token}
		}
		b.hold(some("a", 1))
		b.hold(some("x", 2))
		for _, token := range []string{"b", "c", "d"} {
			word(t, b.enter(some(token, 1)), "waiting", 3)
			b.tick()
		}
		b.left("x") // b and c are told of it, and let their windows pass
		for _, token := range []string{"b", "c"} {
			b.endsIn(lockKeys[4], token, 2, -1)
		}
		b.hold(some("b", 1)) // and d is told
		b.hold(some("d", 1))
		for _, token := range []string{"a", "b", "d"} {
			word(t, b.run(scripts.LockRenew, lockKeys[:5], tokenOf(token), hour, ""), "ok", 2)
		}
		late := some("c", 1)
		late.inbox = ""
		word(t, b.enter(late), "held", 4)
	})
}

// A writer's poll lets in the readers before it, once a lease has ended: its reply says until when
// at most.
func TestPollThatServesOthersSaysUntilWhen(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		for _, token := range []string{"r", "q"} {
			b.enter(ask{token: token, mode: "s", inbox: "in"})
			b.tick()
		}
		w := ask{token: "w", inbox: "in-w"}
		b.enter(w)
		b.do("DEL", lockKeys[0]) // it ends
		reply := b.enter(w)
		word(t, reply, "waiting", 3)
		between(t, "left of the readers' windows", number(t, reply[2]), minute-slack, minute)
		w.token, w.inbox = "v", ""
		reply = b.enter(w)
		word(t, reply, "held", 4)
		between(t, "left for one who does not wait", number(t, reply[2]), minute-slack, minute)
	})
}

// An heir that began with its message, and never asked for its grant, leaves no place, whether or
// not it held the lock for long enough to renew it.
func TestHeirThatNeverAskedLeavesNoPlace(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, mode := range []string{"", "s"} {
			for _, renews := range []bool{false, true} {
				b.hold(ask{token: "a"})
				b.enter(ask{token: "b", mode: mode, inbox: "in"})
				b.left("a")
				if renews {
					word(t, b.run(scripts.LockRenew, lockKeys[:5], tokenOf("b"), hour, ""), "ok", 2)
				}
				b.left("b")
				b.noKeys()
			}
		}
	})
}

// A waiter that was set aside, and finds the lock free when it asks again, leaves no place.
func TestWaiterThatWasSetAsideAndFindsTheLockFreeLeavesNoPlace(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, span := range []int{0, 1} {
			if span > 0 {
				word(t, b.enter(ask{token: "a", span: span}), "doubt", 1)
				b.tick()
				b.tick()
			}
			b.hold(ask{token: "a", span: span})
			word(t, b.enter(ask{token: "b", inbox: "deaf", span: span}), "waiting", 3)
			want(t, b.leave("a", "", terms(hour, minute, "1", span)), "free")
			b.hold(ask{token: "b", inbox: "deaf", span: span})
			want(t, b.leave("b", "", terms(hour, minute, "1", span)), "free")
			b.do("DEL", lockKeys[5])
			b.noKeys()
		}
	})
}

// A fence is remembered for a minute after the lock is free, however long its lease was; and longer
// where it is ahead of the server's time, which alone makes later ones larger.
func TestFenceIsRememberedForAMinuteAfterTheRelease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const day = 24 * hour
		for _, ahead := range []int64{0, 2 * hour} {
			for _, end := range []string{"released", "released with a waiter set aside", "shared", "broken"} {
				if ahead > 0 {
					b.do("SET", lockKeys[1], fmt.Sprint((b.now()+ahead)*1000, " 1 0 -"))
				}
				mode := ""
				if end == "shared" {
					mode = "s"
				}
				fence := b.hold(ask{token: "a", mode: mode, ttl: day})
				between(t, "the fence's expiry while the lock is held, "+end, b.expiry(lockKeys[1])-b.now(), day+minute+ahead-slack, day+minute+ahead+slack)
				if end == "released with a waiter set aside" {
					b.enter(ask{token: "w", inbox: "dead"})
				}
				if end == "broken" {
					word(t, b.run(scripts.LockBreak, lockKeys[:5], fence, terms(hour, minute, "1", 0)), "broken", 1)
				} else {
					want(t, b.leave("a", "", terms(hour, minute, "1", 0)), "free")
				}
				between(t, "the fence's expiry, "+end, b.expiry(lockKeys[1])-b.now(), minute+ahead-slack, minute+ahead+slack)
				b.do("FLUSHALL")
			}
		}
	})
}

// While some hold a lock together, its last fence is remembered for a minute longer than the last
// of their leases, whatever others had in between.
func TestFenceIsRememberedForAsLongAsALockIsHeldTogether(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const day = 24 * hour
		remembered := func(after string, span int64) {
			t.Helper()
			between(t, "the fence's expiry after "+after, b.expiry(lockKeys[1])-b.now(), span+minute-slack, span+minute+slack)
		}
		b.hold(ask{token: "a", mode: "s", ttl: minute})
		word(t, b.run(scripts.LockRenew, lockKeys[:5], tokenOf("a"), day, ""), "ok", 2)
		remembered("a renewal", day)
		b.hold(ask{token: "b", mode: "s", ttl: minute})
		remembered("a shorter lease beside it", day)
		b.left("b")
		remembered("its release", day)
		fence := b.hold(ask{token: "b", mode: "s", ttl: minute})
		word(t, b.run(scripts.LockBreak, lockKeys[:5], fence, terms(hour, minute, "1", 0)), "broken", 1)
		remembered("its breaking", day)
		b.hold(ask{token: "a", mode: "s", ttl: 2 * day})
		remembered("a repeat with a longer lease", 2*day)
		b.hold(ask{token: "b", mode: "s", ttl: hour})
		b.left("a")
		remembered("a release beside a shorter lease", hour)
		b.left("b")
		remembered("the last release", 0)
	})
}
