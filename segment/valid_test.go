package segment

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// onTrial is a source of 100 ids a time, which are valid until a context ends. gate is closed when
// Take may return.
type onTrial struct {
	next  atomic.Int64
	valid atomic.Pointer[registered]
	gate  chan struct{}
}

// registered is a context that counts who waits for its end.
type registered struct {
	context.Context

	waiting atomic.Int64
}

// Value hides the context within, which package context would wait for instead.
func (r *registered) Value(any) any { return nil }

func (r *registered) AfterFunc(f func()) (stop func() bool) {
	r.waiting.Add(1)
	end := context.AfterFunc(r.Context, f)
	return func() bool {
		r.waiting.Add(-1)
		return end()
	}
}

func newTrial(t *testing.T) (source *onTrial, valid *registered, end func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	source, valid = &onTrial{gate: make(chan struct{})}, &registered{Context: ctx}
	source.next.Store(1)
	source.valid.Store(valid)
	return source, valid, end
}

func (s *onTrial) Take(ctx context.Context, _ string, _ int64) (Range, error) {
	hi := s.next.Add(100)
	r := Range{Lo: hi - 100, Hi: hi}
	if valid := s.valid.Load(); valid != nil {
		r.Valid = valid
	}
	select {
	case <-s.gate:
		return r, nil
	case <-ctx.Done():
		return Range{}, ctx.Err()
	}
}

func wantNext(t *testing.T, ids *Segments, want int64) {
	t.Helper()
	if got, err := ids.Next(t.Context(), "t"); err != nil || got != want {
		t.Fatalf("Next: got %d, %v, want %d", got, err, want)
	}
}

// What others may have had is handed out no more, neither of the range in use nor of the next one.
func TestRangesThatAreNotValidAnyMoreAreDropped(t *testing.T) {
	t.Parallel()
	source, _, end := newTrial(t)
	close(source.gate)
	ids := New(source, Config{})
	defer ids.Close()
	for want := range int64(50) {
		wantNext(t, ids, want+1)
	}
	expect.Eventually(t, "the next range is ready", func() bool { return ids.Stats()[0].Ready == 1 })
	source.valid.Store(nil)
	end()
	expect.Eventually(t, "both ranges are dropped", func() bool {
		now := ids.Stats()[0]
		return now.Current.Pos == now.Current.Max && now.Next.Pos == now.Next.Max
	})
	wantNext(t, ids, 201)
}

func TestRangeThatIsNotValidWhenItComesIsRefused(t *testing.T) {
	t.Parallel()
	source, _, end := newTrial(t)
	ids := New(source, Config{})
	defer ids.Close()
	failed := make(chan error, 1)
	go func() {
		_, err := ids.Next(t.Context(), "t")
		failed <- err
	}()
	expect.Eventually(t, "a fetch is under way", func() bool { return source.next.Load() == 101 })
	end()
	source.valid.Store(nil)
	close(source.gate)
	if err := <-failed; !errors.Is(err, ErrWentBack) {
		t.Errorf("a range that others may have had: got error %v, want %v", err, ErrWentBack)
	}
	wantNext(t, ids, 101)
}

// A source may live for long: no range that is used up, or was dropped, waits for the end.
func TestNothingWaitsForTheEndOfRangesThatAreUsedUp(t *testing.T) {
	t.Parallel()
	source, valid, end := newTrial(t)
	defer end()
	close(source.gate)
	ids := New(source, Config{})
	for want := range int64(1000) {
		wantNext(t, ids, want+1)
	}
	if n := valid.waiting.Load(); n < 1 || n > maxDepth+1 {
		t.Errorf("%d ranges wait for the end of their validity, want those that are in use", n)
	}
	ids.Close()
	expect.Equal(t, "ranges that wait after Close", valid.waiting.Load(), int64(0))
}
