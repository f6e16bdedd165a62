package lock

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
)

// mints makes a server continue with that fence, unless its own is larger, as a server does whose
// clock is ahead.
func mints(t testing.TB, f *field, locks *QuorumLocks, i int, name string, fence int64) {
	t.Helper()
	const note = `if tonumber(string.match(redis.call('GET', KEYS[1]) or '0', '^%d+')) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1] .. ' - 0 -', 'PX', 3600000) end return 'ok'`
	if err := f.servers[i].Client().Eval(t.Context(), note, []string{locks.each[i].Key(name) + ":fence"}, fence-handings-1).Err(); err != nil {
		t.Fatal(err)
	}
}

// base is ahead of all clocks, so that what servers mint is what a test says.
const base = int64(1) << 52

// The counter-example: three servers mint 5, 2 and 9 for a holder. The third goes away, and the
// first two, without what was written back to them, would mint 6 and 3.
func TestFenceOfAQuorumRisesWhenTheServerOfTheLargestIsAway(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks := field.far(t, grantAtOnce)
	for i, fence := range []int64{5, 2, 9} {
		mints(t, field, locks, i, "fence", base+fence)
	}
	// Each holder gets a majority of two; the third is cut off from the start.
	var fences []int64
	for _, away := range []int{0, 2, 1, 0, 2} {
		field.links[away].set(redistest.CutBefore)
		held := mustQuorum(t, locks, "fence", Request{})
		fences = append(fences, held.Fence())
		release(t, held)
		field.links[away].set(redistest.Pass)
	}
	if rising(t, fences...); fences[0] != base+9 || fences[1] != base+9+handings+1 {
		t.Errorf("fences %d", fences)
	}
}

// Whichever minority is away at whatever step, and wherever clocks are: fences rise. A lock that
// could not be given back somewhere ends there by itself.
func TestFencesOfAQuorumRise(t *testing.T) {
	t.Parallel()
	fencesOfAQuorumRise(t)
}

func fencesOfAQuorumRise(t *testing.T) {
	t.Helper()
	field := startField(t, 5)
	locks := field.far(t, grantAtOnce)
	release(t, mustQuorum(t, locks, "known", Request{})) // the scripts are
	pass := func() {
		for _, link := range field.links {
			link.set(redistest.Pass)
			link.setRaise(redistest.Pass)
		}
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		pass() // a check that failed may have ended anywhere
		round++
		name := fmt.Sprint("fence-", round)
		for i, ahead := range rapid.SliceOfN(rapid.Int64Range(1, 50), 5, 5).Draw(rt, "clocks") {
			mints(t, field, locks, i, name, base+ahead)
		}
		last := int64(0)
		for range rapid.IntRange(2, 6).Draw(rt, "grants") {
			if rapid.Bool().Draw(rt, "a clock jumps") {
				mints(t, field, locks, rapid.IntRange(0, 4).Draw(rt, "server"), name, max(last, base)+rapid.Int64Range(-20, 20).Draw(rt, "by"))
			}
			away := rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(rt, "away")
			fates := []redistest.Fate{redistest.CutBefore, redistest.CutAfter}
			field.links[away[0]].set(rapid.SampledFrom(fates).Draw(rt, "first"))
			field.links[away[1]].setRaise(rapid.SampledFrom(fates).Draw(rt, "second"))
			held, err := locks.Acquire(t.Context(), name, Request{Wait: patient})
			if err != nil {
				rt.Fatal(err)
			}
			pass()
			if held.Fence() <= last || held.Fence() >= 1<<53 {
				rt.Errorf("fence %d after %d", held.Fence(), last)
			}
			last = held.Fence()
			if err := held.Release(t.Context()); err != nil {
				rt.Fatal(err)
			}
			for i := range field.servers {
				end(t, field, locks, i, name)
			}
		}
	})
}

// end ends what a server has of a lock, as its expiry does.
func end(t testing.TB, f *field, locks *QuorumLocks, i int, name string) {
	t.Helper()
	if err := f.servers[i].Client().Del(t.Context(), locks.each[i].Key(name)).Err(); err != nil {
		t.Fatal(err)
	}
}

// A server whose grant came too late to count, or that did not get the fence, gets it with the next
// renewal.
func TestRenewalBringsTheFenceToEveryServer(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks := field.far(t, grantAtOnce)
	release(t, mustQuorum(t, locks, "known", Request{})) // the scripts are
	for round := 1; ; round++ {
		held := renewedEverywhere(t, field, locks, fmt.Sprint("late-", round))
		if held == nil && round < 20 {
			continue // the machine stood still for longer than the lease
		} else if held == nil {
			t.Fatal("no lease outlasted a renewal")
		}
		listed := func() bool {
			names, err := locks.each[2].Names(t.Context(), held.Name(), "", 10)
			return err == nil && len(names) > 0
		}
		expect.Eventually(t, "it is listed", func() bool { return listed() || held.Err() != nil })
		if err := held.Release(t.Context()); err != nil {
			continue // the same
		}
		nowhere(t, locks, held.Name())
		expect.Eventually(t, "the list is empty", func() bool { return !listed() })
		return
	}
}

// renewedEverywhere holds a lock that reaches the third server only by renewals, until every server
// has it and its fence. It is nil if the lease ended before that.
func renewedEverywhere(t *testing.T, field *field, locks *QuorumLocks, name string) *Lock {
	t.Helper()
	mints(t, field, locks, 1, name, base)
	field.links[2].set(redistest.CutBefore)
	held, err := locks.Acquire(t.Context(), name, Request{TTL: time.Second, Wait: patient})
	if err != nil {
		t.Fatal(err)
	}
	if held.Fence() < base {
		t.Errorf("fence %d", held.Fence())
	}
	field.links[2].set(redistest.Pass)
	for _, each := range locks.each {
		expect.Eventually(t, "every server has the lock and its fence", func() bool {
			return held.Err() != nil || has(t, each, name, held.Token()) && info(t, each, name).Fence >= held.Fence()
		})
	}
	if held.Err() == nil {
		return held
	}
	_ = held.Release(t.Context()) // if it still has it
	return nil
}
