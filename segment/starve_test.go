package segment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// drained gives a tag of which 1 to 20 were drawn in two ranges, with a source that answers as
// before demands from then on. The fetch that follows in the background is over, or waits in
// before, so that no test that changes the source next meets it halfway.
func drained(t *testing.T, config Config, before func(context.Context, string) error) (*shelf, *Segments, *Tag) {
	t.Helper()
	source := newShelf("orders", 1, 10)
	s := open(t, source, config)
	tag := handle(t, s, "orders")
	nextN(t, tag, 10)
	synctest.Wait()
	source.setBefore(before)
	nextN(t, tag, 10)
	synctest.Wait()
	return source, s, tag
}

func TestStarvedCallersWaitForTheRangeAndGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := newGate()
		source, s, tag := drained(t, Config{}, gate.wait)
		var calls []<-chan call
		for range 15 {
			calls = append(calls, draw(t.Context(), tag))
		}
		synctest.Wait()
		if got := only(t, s); got.Starved != 1 || got.Ready != 0 {
			t.Errorf("while they wait: %+v", got)
		}
		time.Sleep(time.Second)
		gate.open()
		seen := map[int64]bool{}
		for _, one := range calls {
			got := <-one
			if got.err != nil || seen[got.id] || got.id < 21 || got.id > 35 {
				t.Errorf("got %d, %v", got.id, got.err)
			}
			seen[got.id] = true
		}
		source.onlyOneAtATime(t)
		expect.Equal(t, "Totals", s.Totals(), Totals{Tags: 1, Starved: 1}, cmpopts.IgnoreFields(Totals{}, "Fetches"))
	})
}

// It is one starvation from the first caller that finds nothing until a range comes, however many
// wait, give up and come again.
func TestStarvationIsCountedOnceUntilARangeComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, s, tag := drained(t, Config{}, refused)
		for range 5 {
			_, err := tag.Next(t.Context())
			wantIs(t, err, errDown)
		}
		expect.Equal(t, "how often it starved", only(t, s).Starved, 1)
	})
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 1)
		source.setBefore(after(time.Second))
		s := open(t, source, Config{MaxStep: 1})
		tag := handle(t, s, "orders")
		if got := only(t, s); got.Starved != 0 || got.Fetches != 1 {
			t.Errorf("the first range counts as a starvation: %+v", got)
		}
		nextN(t, tag, 1)
		for n := range int64(4) {
			next(t, tag)
			next(t, tag) // the one that was ready is gone
			time.Sleep(time.Minute)
			if got := only(t, s).Starved; got > 2*(n+1) || got < n {
				t.Errorf("starved %d times in round %d", got, n)
			}
		}
	})
}

func TestContextEndsTheWaitAndNothingElse(t *testing.T) {
	reason := errors.New("the client hung up")
	bubble(t, func(t *testing.T) {
		gate := newGate()
		source, s, tag := drained(t, Config{Timeout: time.Minute}, gate.wait)
		over, cancel := context.WithCancelCause(t.Context())
		short, done := context.WithTimeout(t.Context(), 3*time.Second)
		defer done()
		cancelled, timed, patient := draw(over, tag), draw(short, tag), draw(t.Context(), tag)
		synctest.Wait()
		cancel(reason)
		wantIs(t, (<-cancelled).err, ErrStarved, redisstore.ErrRefused, reason)
		wantIs(t, (<-timed).err, ErrStarved, redisstore.ErrRefused, context.DeadlineExceeded)
		if err := s.Fill(over, "orders", make([]int64, 5)); !errors.Is(err, ErrStarved) {
			t.Errorf("got %v", err)
		}
		gate.open()
		if got := <-patient; got.err != nil || got.id != 21 {
			t.Errorf("the one that waited on got %+v", got)
		}
		expect.Equal(t, "max after the third fetch, which was not begun again", source.maxes("orders")[2], 41)
		id, err := tag.Next(over) // an ended context does not matter where nothing is waited for
		if err != nil || id != 22 {
			t.Errorf("got %d, %v", id, err)
		}
	})
}

// A caller whose context has ended asks the source for nothing.
func TestEndedContextStartsNoFetch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		source := newShelf("orders", 1, 10)
		s := open(t, source, Config{})
		_, err := s.Tag(over, "orders")
		wantIs(t, err, ErrStarved, context.Canceled)
		_, err = s.Next(over, "orders")
		wantIs(t, err, ErrStarved, context.Canceled)
		synctest.Wait()
		expect.Equal(t, "fetches for a context that has ended", len(source.all("orders")), 0)
	})
}

// A waiting caller gets the error with its class and cause, at once. The next one asks again at
// once, and gets ids as soon as the source has some.
func TestStarvedCallerGetsTheErrorAtOnceAndTriesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, s, tag := drained(t, Config{}, refused)
		time.Sleep(time.Hour) // the backoff is at its longest
		start, failures := time.Now(), only(t, s).Failures
		for range 3 {
			_, err := tag.Next(t.Context())
			wantIs(t, err, redisstore.ErrUnavailable, redisstore.ErrRefused, errDown)
		}
		source.setBefore(nil)
		expect.Equal(t, "the first id when there are some again", next(t, tag), 21)
		expect.Equal(t, "how long that took", time.Since(start), 0)
		expect.Equal(t, "failures", only(t, s).Failures, failures+3)
		source.onlyOneAtATime(t)
	})
}

// A batch that the ranges do not fill waits for the rest, and fails as a whole.
func TestBatchIsFilledOrFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		source.setBefore(after(time.Millisecond))
		s := open(t, source, Config{})
		ids := make([]int64, 1_000)
		expect.NoError(t, "NextN orders", s.Fill(t.Context(), "orders", ids))
		wantRun(t, ids, 1)
		expect.Error(t, "NextN orders", s.Fill(t.Context(), "orders", nil), nil)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		source.setBefore(newGate().wait)
		wantIs(t, s.Fill(short, "orders", make([]int64, 100_000)), ErrStarved, context.DeadlineExceeded)
	})
}

func TestIteratorEndsWithTheConsumerOrAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, tag := drained(t, Config{}, nil)
		count := int64(21)
		for id, err := range tag.All(t.Context()) {
			if err != nil || id != count {
				t.Fatalf("got %d, %v", id, err)
			}
			if count++; count == 40 {
				break
			}
		}
		over, cancel := context.WithCancel(t.Context())
		for id, err := range tag.All(over) {
			if err != nil {
				wantIs(t, err, ErrClosed)
				break
			}
			if id == 60 {
				tag.segments.Close()
			}
		}
		cancel()
	})
}
