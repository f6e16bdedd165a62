package metrics

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestLongestWaitIsThatOfWhoCameFirstAndStillWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService("v1")
		want := func(waiting int, longest time.Duration) {
			t.Helper()
			expect.Contains(t, "a scrape", scraped(s.Registry),
				fmt.Sprintf("coatcheck_lock_waiting %d\n", waiting), fmt.Sprintf("coatcheck_lock_longest_wait_seconds %v\n", longest.Seconds()))
		}
		want(0, 0)
		_, first := s.lockWaits()
		time.Sleep(10 * time.Second)
		waited, second := s.lockWaits()
		time.Sleep(5 * time.Second)
		want(2, 15*time.Second)
		waited(time.Second) // a clock that goes slower makes nobody younger
		want(2, 15*time.Second)
		waited(time.Minute)
		want(2, time.Minute)
		waited(5 * time.Second)
		first(true)
		want(1, time.Minute)
		second(false)
		want(0, 0)
		expect.Contains(t, "a scrape after both waits", scraped(s.Registry),
			"coatcheck_lock_wait_seconds_sum{outcome=\"granted\"} 15\n", "coatcheck_lock_wait_seconds_sum{outcome=\"not_granted\"} 5\n")
	})
}

func TestHoldTimesAreThoseOfLocksThatWereGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService("v1")
		want := func(held int, times int, sum float64) {
			t.Helper()
			expect.Contains(t, "a scrape", scraped(s.Registry), fmt.Sprintf("coatcheck_lock_held %d\n", held),
				fmt.Sprintf("coatcheck_lock_hold_seconds_count %d\n", times), fmt.Sprintf("coatcheck_lock_hold_seconds_sum %v\n", sum))
		}
		for _, token := range []string{"released", "renewed", "lapsed", "lost", "undone"} {
			s.LockGranted(token, time.Minute)
		}
		want(5, 0, 0)
		time.Sleep(40 * time.Second)
		s.LockReleased("released", Done)
		s.LockReleased("released", Done) // a repeat, or another server's
		s.LockReleased("of another server", Done)
		s.LockRenewed("renewed", time.Minute, Done)
		s.LockRenewed("of another server", time.Minute, Done)
		s.LockRenewed("lapsed", time.Minute, Failed)
		s.LockRenewed("lost", 0, Gone)
		s.LockUndone("undone")
		want(2, 1, 40)
		time.Sleep(30 * time.Second)
		want(1, 1, 40) // the lapsed one has ended by itself
		s.LockReleased("renewed", Done)
		want(0, 2, 110)
	})
}

// A process that grants more than it remembers counts on, and forgets what has ended.
func TestHoldsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService("v1")
		for i := range mostHolds + 5 {
			s.LockGranted(fmt.Sprint("early", i), time.Second)
		}
		expect.Equal(t, "holds that are remembered after five too many", len(s.holds.by), mostHolds)
		time.Sleep(2 * time.Second)
		s.LockGranted("late", time.Minute)
		expect.Equal(t, "holds that are remembered when all but one have ended", len(s.holds.by), 1)
	})
}
