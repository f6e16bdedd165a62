package counter_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// inBubble runs a test on an embedded store, where an hour takes no time.
func inBubble(t *testing.T, test func(t *testing.T, c counters)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{})
		c := counters{counter.New(store, counter.Config{}), store}
		defer c.Close()
		test(t, c)
	})
}

// another is counters of the same store in another process.
func (c counters) another(t *testing.T) counters {
	t.Helper()
	other := counters{counter.New(c.store, counter.Config{}), c.store}
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// daily adds to the counter k.
func (c counters) daily(t *testing.T, ttl time.Duration, want int64) {
	t.Helper()
	if got, err := c.Add(t.Context(), "k", counter.Request{TTL: ttl}); err != nil || got.Last != want {
		t.Errorf("got %+v, %v, want %d", got, err, want)
	}
}

func TestCounterBeginsAgainWhenItHasExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		for range 3 {
			for i := range int64(10) {
				c.daily(t, time.Hour, i+1)
				time.Sleep(time.Minute) // which does not extend it
			}
			time.Sleep(51 * time.Minute)
		}
		c.daily(t, time.Hour, 1)
		c.daily(t, 10*time.Hour, 2)
		c.gets(t, "k", 3)
		time.Sleep(61 * time.Minute)
		c.gone(t)
		expect.Equal(t, "names that are listed after the end", len(c.listed(t, "")), 0)
		c.daily(t, time.Hour, 1)
		expect.Equal(t, "names that are listed when it has begun again", len(c.listed(t, "")), 1)
	})
}

// gone fails the test unless there is no counter k.
func (c counters) gone(t *testing.T) {
	t.Helper()
	_, err := c.Get(t.Context(), "k")
	wantRefused(t, err, counter.ErrNotFound)
}

func TestCounterBeginsAgainAtOnceWhenItsTimeIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		for range 3 {
			c.daily(t, time.Hour, 1)
			time.Sleep(time.Hour - time.Millisecond)
			c.daily(t, time.Hour, 2)
			time.Sleep(2 * time.Millisecond)
		}
	})
}

func TestCounterWithoutAnEndIsGivenOneOnPurpose(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.gets(t, "k", 1)
		time.Sleep(1000 * time.Hour)
		c.gets(t, "k", 2)
		c.giveEnd(t, time.Hour, 3)
		c.daily(t, time.Hour, 4)
		c.giveEnd(t, 10*time.Hour, 5) // which does not extend it
		time.Sleep(59 * time.Minute)
		c.want(t, "k", 5)
		time.Sleep(2 * time.Minute)
		c.gone(t)
		c.daily(t, time.Hour, 1)
	})
}

// giveEnd adds to the counter k, and has it end.
func (c counters) giveEnd(t *testing.T, ttl time.Duration, want int64) {
	t.Helper()
	c.adds(t, counter.Request{TTL: ttl, GiveEnd: true}, want)
}

// permanent fails the test unless a call with a TTL is refused for the counter k, which has no end.
func (c counters) permanent(t *testing.T, request counter.Request, value int64) {
	t.Helper()
	_, err := c.Add(t.Context(), "k", request)
	wantRefused(t, err, counter.ErrPermanent)
	var refused *counter.PermanentError
	if !errors.As(err, &refused) || *refused != (counter.PermanentError{Key: "k", Value: value, TTL: request.TTL}) {
		t.Errorf("Add of %+v: got %v, want it refused at %d", request, err, value)
	}
	expect.Contains(t, "the way out", fmt.Sprint(err), fmt.Sprintf("coatcheck counter set k %d --ttl %v", value, request.TTL))
	c.want(t, "k", value)
}

// Whoever begins a counter decides whether it ends: also where the process that gave no TTL, or
// another that knows an end, has it otherwise in mind.
func TestTTLOfACounterWithoutAnEndIsRefused(t *testing.T) {
	requests := map[string]counter.Request{
		"plainly": {TTL: time.Hour}, "with a limit": {TTL: time.Hour, Limit: 100}, "with a request id": {TTL: time.Hour, RequestID: "a"},
		"as a count": {TTL: time.Hour, Limit: 100, AfterLoss: counter.AfterLossStay}, "past its limit": {TTL: time.Hour, Limit: 1},
	}
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		c := counters{counter.New(store, counter.Config{}), store}
		defer c.Close()
		other := c.another(t)
		c.gets(t, "k", 1)
		for name, request := range requests {
			t.Run(name, func(t *testing.T) {
				at := c.incr(t, "k", 1, "").Last
				c.permanent(t, request, at)
				other.permanent(t, request, at)
				other.gets(t, "k", at+1)
			})
		}
	})
}

// The process has opened the counter while it had an end, and is not told that another has set it
// without.
func TestTTLOfACounterThatHasLostItsEndIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		other := c.another(t)
		c.daily(t, time.Hour, 1)
		other.mustSet(t, "k", 7, 0)
		c.permanent(t, counter.Request{TTL: time.Hour}, 7)
		c.gets(t, "k", 8)
		time.Sleep(100 * time.Hour)
		c.permanent(t, counter.Request{TTL: time.Hour}, 8)
		other.gets(t, "k", 9)
	})
}

// An operator who follows the refusal of a counter with a TTL does not make it permanent.
func TestCounterThatIsBehindIsSetWithItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		strict := counters{counter.New(c.store, counter.Config{AfterLoss: counter.AfterLossRefuse}), c.store}
		defer strict.Close()
		hourly := counter.Request{TTL: time.Hour, Limit: 100}
		strict.adds(t, hourly, 1)
		strict.adds(t, hourly, 2)
		c.put(t, "k", "SET", "1")
		_, err := strict.Add(t.Context(), "k", hourly)
		wantRefused(t, err, counter.ErrBehind)
		expect.Contains(t, "the way out", fmt.Sprint(err), "coatcheck counter set k 2 --ttl 1h0m0s (else")
		_, err = strict.Incr(t.Context(), "k")
		expect.Contains(t, "the way out of a call without a TTL", fmt.Sprint(err), "coatcheck counter set k 2 (else")
	})
}

// A process has no TTL in memory for the next generation.
func TestGenerationThatBeginsWithoutATTLHasNoEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.daily(t, time.Hour, 1)
		time.Sleep(61 * time.Minute)
		c.gets(t, "k", 1)
		time.Sleep(1000 * time.Hour)
		c.permanent(t, counter.Request{TTL: time.Hour}, 1)
		c.gets(t, "k", 2)
	})
}

// A call that adds nothing gives no end.
func TestCallThatIsPastItsLimitGivesNoEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.countTo(t, "k", 5)
		_, err := c.Add(t.Context(), "k", counter.Request{TTL: time.Hour, Limit: 5, GiveEnd: true})
		wantRefused(t, err, counter.ErrLimit)
		time.Sleep(61 * time.Minute)
		c.gets(t, "k", 6)
		_, err = c.Add(t.Context(), "k", counter.Request{GiveEnd: true})
		wantRefused(t, err, counter.ErrInvalid)
	})
}

func TestCounterIsSetWithAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.countTo(t, "k", 100)
		c.mustSet(t, "k", 7, time.Hour)
		c.gets(t, "k", 8)
		time.Sleep(61 * time.Minute)
		c.gone(t)
		c.gets(t, "k", 1)
	})
}

// Calls are under way as the counter expires: each has a value of the old counter or of the new
// one, none has one of a third.
func TestCounterIsOpenedShortlyBeforeItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.daily(t, time.Second, 1)
		expect.NoError(t, "Reset k", c.Reset(t.Context(), "k"))
		// with a record of the reset beside it, which ends with the counter
		c.daily(t, time.Second, 1)
		time.Sleep(950 * time.Millisecond)
		other := c.another(t)
		other.daily(t, time.Second, 2)
		time.Sleep(50 * time.Millisecond)
		other.daily(t, time.Second, 1)
	})
}

func TestRecordOfACounterThatIsOpenedInItsLastMillisecondEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		c.daily(t, time.Second, 1)
		expect.NoError(t, "Reset k", c.Reset(t.Context(), "k"))
		c.daily(t, time.Second, 1)
		time.Sleep(time.Second - time.Millisecond/2)
		other := c.another(t)
		other.daily(t, time.Second, 2)
		time.Sleep(26 * time.Hour) // the record of a counter that was removed stays for a day
		stays := scripts.New("stays", "return {tostring(redis.call('EXISTS', KEYS[1]))}")
		reply, err := onstore.Run(t.Context(), c.store, stays, []string{onstore.Key(c.store, "counter", "k", "record")})
		expect.Equal(t, fmt.Sprintf("EXISTS of the record, %v", err), reply, scripts.Reply{"0"})
	})
}

func TestCallsUnderWayAsTheCounterExpires(t *testing.T) { callsAsTheCounterExpires(t, 4) }

// callsAsTheCounterExpires has two processes add to a counter across its end, that many times.
func callsAsTheCounterExpires(t *testing.T, rounds int) {
	t.Helper()
	inBubble(t, func(t *testing.T, c counters) {
		other := c.another(t)
		for range rounds {
			var all sync.WaitGroup
			begun := time.Now()
			for _, p := range []counters{c, other} {
				for i := range 4 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond)
						p.addAcrossTheEnd(t, begun)
					})
				}
			}
			all.Wait()
		}
		time.Sleep(2 * expiring)
		c.gone(t)
	})
}

// expiring is the TTL of a counter that expires under its callers.
const expiring = 200 * time.Millisecond

// addAcrossTheEnd adds to a counter until half a TTL after its end. It begins again once, or twice
// for a call that comes as another's first call is under way, and is never taken for lost.
func (c counters) addAcrossTheEnd(t *testing.T, begun time.Time) {
	last, fell := int64(0), 0
	for time.Since(begun) < 3*expiring/2 {
		got, err := c.Add(t.Context(), "k", counter.Request{TTL: expiring})
		if err != nil {
			t.Errorf("Add to a counter that expires: %v", err)
			return
		}
		if got.Last <= last {
			fell++
		}
		if got.Last > 100_000 {
			t.Errorf("Add to a counter that expires: got %+v, want a small value: it was taken for lost", got)
		}
		last = got.Last
		time.Sleep(5 * time.Millisecond)
	}
	if fell > 2 {
		t.Errorf("the counter began again %d times, want 2 at most", fell)
	}
}

func TestProcessForgetsWhatItHasSeenOfAKeyThatIsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		other := c.another(t)
		other.countTo(t, "k", 100)
		expect.NoError(t, "Reset k", c.Reset(t.Context(), "k"))
		time.Sleep(25 * time.Hour) // Redis no longer knows that it was removed
		c.gets(t, "k", 1)
		other.gets(t, "k", 2)
	})
}

// A counter that has expired begins again for every process, also for one that did not give it its
// TTL.
func TestTTLThatAnotherProcessGaveIsNoLoss(t *testing.T) {
	for name, give := range map[string]func(*testing.T, counters){
		"by adding":            func(t *testing.T, c counters) { c.giveEnd(t, time.Hour, 5) },
		"by setting":           func(t *testing.T, c counters) { c.mustSet(t, "k", 5, time.Hour) },
		"by setting it back":   func(t *testing.T, c counters) { c.mustSet(t, "k", 2, time.Hour) },
		"after a larger value": func(t *testing.T, c counters) { c.giveEnd(t, time.Hour, 5); c.mustSet(t, "k", 3, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c counters) {
				other := c.another(t)
				c.countTo(t, "k", 4)
				give(t, other)
				time.Sleep(61 * time.Minute)
				c.gone(t)
				c.gets(t, "k", 1)
				c.gets(t, "k", 2)
				other.gets(t, "k", 3)
			})
		})
	}
}

// The process that knows of the TTL is gone when the counter has begun again, and is lost then.
func TestCounterThatBeganAgainIsMissedWhenItIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		other := counters{counter.New(c.store, counter.Config{}), c.store}
		c.countTo(t, "k", 4)
		other.giveEnd(t, time.Hour, 5)
		_ = other.Close()
		time.Sleep(61 * time.Minute)
		c.countTo(t, "k", 50)
		c.put(t, "k", "SET", "7")
		c.gets(t, "k", 50+counter.DefaultMargin+1)
	})
}

// A process that opened the counter while it was absent, and adds after another has begun it, knows
// that it ends, whatever the two calls ask for: the counter begins again for both, at 1.
func TestCounterThatAnotherBeganBetweenTwoStepsOfACallEndsForBoth(t *testing.T) {
	begins := map[string]counter.Request{
		"with a TTL":                  {TTL: time.Hour},
		"with a TTL and a limit":      {TTL: time.Hour, Limit: 100},
		"with a TTL and a request id": {TTL: time.Hour, RequestID: "begin"},
	}
	adds := map[string]counter.Request{
		"plainly":           {},
		"with a limit":      {Limit: 100},
		"with a request id": {RequestID: "add"},
		"with a longer TTL": {TTL: 10 * time.Hour},
	}
	configs := map[string]counter.Config{
		"alike": {}, "that refuses": {AfterLoss: counter.AfterLossRefuse}, "of another margin and hold-off": {Margin: 7, HoldOff: time.Minute},
	}
	for begun, begin := range begins {
		for added, add := range adds {
			for kind, config := range configs {
				t.Run(fmt.Sprintf("begun %s, added %s by one %s", begun, added, kind), func(t *testing.T) {
					inBubble(t, func(t *testing.T, c counters) {
						other := counters{counter.New(c.store, config), c.store}
						defer other.Close()
						for generation := range 3 {
							begin, add := begin, add
							for _, request := range []*counter.Request{&begin, &add} {
								if request.RequestID != "" {
									request.RequestID += fmt.Sprint(generation)
								}
							}
							// it opens the counter, and adds nothing
							_, err := other.Add(t.Context(), "k", counter.Request{By: 5, Limit: 3})
							wantRefused(t, err, counter.ErrLimit)
							c.adds(t, begin, 1)
							other.adds(t, add, 2)
							c.gets(t, "k", 3)
							other.gets(t, "k", 4)
							time.Sleep(61 * time.Minute)
						}
						other.adds(t, counter.Request{}, 1)
						c.gets(t, "k", 2)
					})
				})
			}
		}
	}
}

// adds fails the test unless a call about the counter k gets that value.
func (c counters) adds(t *testing.T, request counter.Request, want int64) {
	t.Helper()
	if got, err := c.Add(t.Context(), "k", request); err != nil || got.Last != want {
		t.Errorf("Add of %+v: got %+v, %v, want value %d", request, got, err, want)
	}
}

// Two services meet at the beginning of many counters, one with a TTL and one without. The call
// that gets the value 1 has decided whether the counter ends.
func TestOneOfTwoServicesDecidesWhetherACounterEnds(t *testing.T) {
	url := redistest.Start(t).URL()
	giving, plain := process(t, url), process(t, url, strict)
	key := func(i int) string { return fmt.Sprintf("k%d", i) }
	var all sync.WaitGroup
	var plainly [200]int64
	var given [200]error
	for i := range plainly {
		all.Go(func() { _, given[i] = giving.Add(t.Context(), key(i), counter.Request{TTL: 1500 * time.Millisecond}) })
		all.Go(func() {
			var err error
			plainly[i], err = plain.Incr(t.Context(), key(i))
			expect.NoError(t, "the addition without a TTL to "+key(i), err)
		})
	}
	all.Wait()
	for i, value := range plainly {
		switch {
		case given[i] != nil:
			wantRefused(t, given[i], counter.ErrPermanent)
			giving.gets(t, key(i), 2)
		case value == 2:
			expect.Eventually(t, key(i)+" has ended", func() bool {
				_, err := plain.Get(t.Context(), key(i))
				return errors.Is(err, counter.ErrNotFound)
			})
			fallthrough // else it had ended before
		default:
			plain.gets(t, key(i), 1)
		}
	}
}

// In a bubble no time passes between the two.
func TestCounterThatBeginsAnewTwiceAtOneInstantGoesBackBothTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, c counters) {
		other := c.another(t)
		for range 3 {
			other.mustSet(t, "k", 500, 0)
			c.gets(t, "k", 501)
			expect.Error(t, "Reset", other.Reset(t.Context(), "k"), nil)
			c.gets(t, "k", 1)
		}
	})
}
