package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// While ids are left callers notice nothing. Attempts become rarer, at least to one in half a
// minute; and when it works again, all is as before.
func TestFailedFetchesInTheBackgroundAreRepeatedWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var times []time.Time
		source := newShelf("orders", 1, 1000)
		log := &bytes.Buffer{}
		s := open(t, source, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		tag := handle(t, s, "orders")
		source.setBefore(func(ctx context.Context, tag string) error {
			times = append(times, time.Now())
			return refused(ctx, tag)
		})
		wantRun(t, nextN(t, tag, 500), 1)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(times) < 25 || len(times) > 60 {
			t.Fatalf("%d attempts in 10 minutes", len(times))
		}
		c, attempts := tag.chain.Load(), len(times)
		c.mu.Lock()
		c.prefetchLocked() // as a mark that is passed now, or the end of a range
		c.mu.Unlock()
		synctest.Wait()
		expect.Equal(t, "attempts, while the next is still to wait", len(times), attempts)
		var waits []time.Duration
		for i := 1; i < len(times); i++ {
			waits = append(waits, times[i].Sub(times[i-1]))
		}
		if waits[0] < firstBackoff/2 || waits[0] > firstBackoff || slices.Max(waits) > longestBackoff || len(slices.Compact(slices.Clone(waits))) < len(waits)/2 {
			t.Errorf("waits of %v", waits)
		}
		source.setBefore(nil)
		time.Sleep(time.Minute)
		wantRun(t, nextN(t, tag, 1500), 501)
		synctest.Wait()
		got := only(t, s)
		expect.Equal(t, "starved", got.Starved, 0)
		expect.Equal(t, "failures", got.Failures, int64(len(times)))
		if got.Fetches != 2 && got.Fetches != 3 {
			t.Errorf("got %d fetches, want 2 or 3", got.Fetches)
		}
		if text := log.String(); strings.Count(text, "a fetch failed") != 1 || strings.Count(text, "fetched again") != 1 {
			t.Errorf("the log says %s", text)
		}
	})
}

// The ids of a Take whose answer was lost are a gap. They are not asked for again, and everything
// goes on after them.
func TestUnknownOutcomeLeavesAGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, _, tag := drained(t, Config{}, refused)
		source.setBefore(lost(source, 7))
		_, err := tag.Next(t.Context())
		wantIs(t, err, redisstore.ErrUnknownOutcome, context.DeadlineExceeded)
		source.setBefore(nil)
		wantRun(t, nextN(t, tag, 100), 28)
	})
}

// A source that does not answer is given up after the configured time, for all that wait.
func TestTakeIsGivenUpAfterItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, tag := drained(t, Config{Timeout: 3 * time.Second}, newGate().wait)
		time.Sleep(time.Hour)
		start := time.Now()
		first, second := draw(t.Context(), tag), draw(t.Context(), tag)
		for _, one := range []<-chan call{first, second} {
			wantIs(t, (<-one).err, redisstore.ErrUnknownOutcome, context.DeadlineExceeded)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Nothing is kept for a tag that the source does not have: no entry, no name, no goroutine, however
// many ask for however many of them.
func TestUnknownTagsLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		s := open(t, source, Config{MaxTags: 10})
		for i := range 5_000 {
			name := fmt.Sprintf("made-up-%d", i)
			_, err := s.Next(t.Context(), name)
			wantIs(t, err, ErrNotFound, redisstore.ErrRefused)
			if i%1000 == 0 {
				_, err = s.Tag(t.Context(), name)
				wantIs(t, err, ErrNotFound)
				wantIs(t, s.Fill(t.Context(), name, make([]int64, 3)), ErrNotFound)
			}
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.chains)+len(s.seen)+s.known != 0 || s.sweep != nil {
			t.Errorf("%d chains, %d tags were seen, %d are known", len(s.chains), len(s.seen), s.known)
		}
	})
}

func TestCallersOfAnUnknownTagShareOneTake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		takes, gate := 0, newGate()
		source := newShelf("orders", 1, 10)
		source.setBefore(func(ctx context.Context, tag string) error {
			takes++
			return gate.wait(ctx, tag)
		})
		s := open(t, source, Config{})
		failed := make(chan error)
		for range 100 {
			go func() {
				_, err := s.Next(t.Context(), "unknown")
				failed <- err
			}()
		}
		synctest.Wait()
		gate.open()
		for range 100 {
			wantIs(t, <-failed, ErrNotFound)
		}
		expect.Equal(t, "Takes for 100 callers", takes, 1)
		source.add("unknown", 5)
		if id, err := s.Next(t.Context(), "unknown"); err != nil || id != 5 {
			t.Errorf("after it was made: %d, %v", id, err)
		}
	})
}

// While a failed attempt's chain is discarded, another caller may have begun another: then it
// stays.
func TestTagIsKeptWhileItIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := newGate()
		source := newShelf("orders", 1, 10)
		source.setBefore(gate.wait)
		s := open(t, source, Config{})
		result := make(chan error)
		go func() {
			_, err := s.Next(t.Context(), "orders")
			result <- err
		}()
		synctest.Wait()
		s.discard(s.chains["orders"], ErrNotFound)
		gate.open()
		if err := <-result; err != nil || len(source.all("orders")) != 1 || len(s.Stats()) != 1 {
			t.Errorf("%v, %d fetches", err, len(source.all("orders")))
		}
	})
}

// A tag whose row was removed gives what was fetched. Then it is forgotten, until there is a row
// again.
func TestRemovedTagIsForgottenWhenItsIDsAreGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		nextN(t, tag, 1)
		source.mu.Lock()
		delete(source.rows, "orders")
		source.mu.Unlock()
		nextN(t, tag, 8)
		time.Sleep(time.Minute)
		if got := only(t, s); got.Failures == 0 || got.Fetches != 1 {
			t.Errorf("a tag whose row was removed: got %+v, want failures and the one fetch", got)
		}
		wantRun(t, nextN(t, tag, 1), 10)
		_, err := tag.Next(t.Context())
		wantIs(t, err, ErrNotFound)
		synctest.Wait()
		expect.Equal(t, "tags that are kept", len(s.Stats()), 0)
		source.add("orders", 5) // it came back below what it had given
		_, err = tag.Next(t.Context())
		wantIs(t, err, ErrWentBack)
		if id, err := tag.Next(t.Context()); err != nil || id != 15 {
			t.Errorf("got %d, %v", id, err)
		}
	})
}

func TestExhaustedTagSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1<<63-11, 4)
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		wantRun(t, slow(t, tag, 10), 1<<63-11)
		for range 3 {
			_, err := tag.Next(t.Context())
			wantIs(t, err, ErrExhausted, redisstore.ErrRefused)
		}
	})
}

// A source that was restored from an old copy gives ids again. Each such range is refused and
// counted, until one lies above them all; callers that have ids left notice nothing.
func TestSourceThatWentBackIsRefusedUntilItIsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 100)
		s := open(t, source, Config{MaxStep: 100})
		tag := handle(t, s, "orders")
		wantRun(t, slow(t, tag, 1000), 1)
		source.mu.Lock()
		source.rows["orders"].max = 551
		source.mu.Unlock()
		wantRun(t, slow(t, tag, 100), 1001) // a range that was ready
		refusals := 0
		for refusals < 100 {
			id, err := tag.Next(t.Context())
			if err == nil {
				expect.Equal(t, "the first id after all that were seen", id, 1151)
				break
			}
			wantIs(t, err, ErrWentBack, redisstore.ErrRefused)
			if !strings.Contains(err.Error(), "and 1100 was seen before") {
				t.Errorf("%v: want it to say that 1100 was seen", err)
			}
			refusals++
		}
		// 551, 651 … 1051 lie below, or partly so. The first of them was refused in the background.
		if got := only(t, s).WentBack; got != 6 || s.Totals().WentBack != 6 || refusals != 5 {
			t.Errorf("counted %d, in all %d, refused %d", got, s.Totals().WentBack, refusals)
		}
	})
}

// Ranges of several stripes interleave. One that lies below another's is good; one that lies below
// its own is not.
func TestStripesMayInterleaveButNotGoBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := &script{ranges: []Range{
			{Lo: 300, Hi: 330, Delta: 3}, {Lo: 1, Hi: 31, Delta: 3}, {Lo: 32, Hi: 62, Delta: 3},
			{Lo: 28, Hi: 58, Delta: 3}, // goes back to 28
			{Lo: 31, Hi: 61, Delta: 3},
		}}
		s := open(t, source, Config{})
		var got []int64
		for len(got) < 40 {
			id, err := s.Next(t.Context(), "orders")
			switch {
			case err == nil:
				got = append(got, id)
			// which is told to a caller that waits, if there is one
			case !errors.Is(err, ErrWentBack):
				t.Fatalf("id %d: got %v, want none but %v", len(got), err, ErrWentBack)
			}
		}
		if got[0] != 300 || got[10] != 1 || got[29] != 59 || got[30] != 31 || got[39] != 58 {
			t.Errorf("got %d, want ten each from 300, 1, 32 and 31, and none from 28", got)
		}
		expect.Equal(t, "ranges that went back", only(t, s).WentBack, 1)
		expect.Equal(t, "the distance of the ids", only(t, s).Current.Delta, 3)
	})
}

// Many callers that find nothing, again and again, while the source fails now and then, is slow,
// and gives little: never two Takes at once, never an id twice.
func TestFaultyAndSlowSourceNeverGivesAnIDTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 3)
		takes := 0
		source.setBefore(func(ctx context.Context, tag string) error {
			takes++
			time.Sleep(time.Duration(takes%7) * time.Millisecond)
			switch takes % 5 {
			case 1:
				return refused(ctx, tag)
			case 3:
				return lost(source, 2)(ctx, tag)
			}
			return nil
		})
		s := open(t, source, Config{MaxStep: 6})
		var mu sync.Mutex
		seen := map[int64]bool{}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				last := int64(0)
				for range 200 {
					id, err := s.Next(t.Context(), "orders")
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					mu.Lock()
					if seen[id] || id <= last {
						t.Errorf("%d came twice, or after %d", id, last)
					}
					seen[id], last = true, id
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(seen) < 1000 {
			t.Errorf("%d ids", len(seen))
		}
		source.onlyOneAtATime(t)
	})
}
