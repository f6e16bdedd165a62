package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// watcher is an observer that remembers, and marks the contexts that it is given.
type watcher struct {
	mu      sync.Mutex
	name    string
	began   []string
	calls   []observe.Call
	flights []observe.Flight
	lives   int
	marked  []bool // whether each call ended with a context that it had marked
}

type watcherKey struct{ name string }

func (w *watcher) CallStarted(ctx context.Context, op string) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = append(w.began, op)
	return context.WithValue(ctx, watcherKey{w.name}, op)
}

func (w *watcher) CallEnded(ctx context.Context, call observe.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
	w.marked = append(w.marked, ctx.Value(watcherKey{w.name}) == call.Op)
}

func (w *watcher) FlightEnded(flight observe.Flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flights = append(w.flights, flight)
}

func (w *watcher) LifeBegan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
}

// take returns what was told since it was asked last: the calls without their durations, which are
// only looked at, and how many calls flew.
func (w *watcher) take(t testing.TB) (calls []observe.Call, flown int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.calls {
		if call.Took <= 0 || call.Took > time.Minute {
			t.Errorf("%s took %v", call.Op, call.Took)
		}
		call.Took = 0
		calls = append(calls, call)
	}
	for _, flight := range w.flights {
		flown += flight.Calls
	}
	w.began, w.calls, w.flights, w.marked = nil, nil, nil, nil
	return calls, flown
}

func TestObserversAreToldOfEveryCall(t *testing.T) {
	server := redistest.Start(t)
	first, second := &watcher{name: "first"}, &watcher{name: "second"}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 10 * time.Second, Observers: []observe.Observer{first, second}})
	ctx := t.Context()
	warm(t, store, 1)
	first.take(t)
	second.take(t)

	_, life, err := pipeline.Of(store).RunFor(ctx, scripts.Incarnation, []string{store.Key("incarnation", "store")})
	if err != nil {
		t.Fatal(err)
	}
	mustIncr(t, store, "k", 3, life, 3)
	if err := server.Client().Set(ctx, store.Key("test", "text"), "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, refusal := incrBy(t, store, "text", 1, life)
	want := []observe.Call{
		{Op: "incarnation", N: 1, Word: "new", Together: 1}, {Op: observe.OpIncrBy, N: 1, Together: 1}, {Op: observe.OpIncrBy, N: 1, Err: refusal, Together: 1},
	}
	if !slices.Equal(first.marked, []bool{true, true, true}) || !slices.Equal(first.began, []string{"incarnation", "incrby", "incrby"}) {
		t.Errorf("calls ended with contexts that were begun %v for %v", first.marked, first.began)
	}
	for _, w := range []*watcher{first, second} {
		if got, flown := w.take(t); !slices.Equal(got, want) || flown < 3 {
			t.Errorf("%s was told of %+v, and %d flew; want %+v", w.name, got, flown, want)
		}
	}

	server.Stop()
	_, err = store.Run(ctx, scripts.Incarnation, []string{store.Key("incarnation", "store")})
	if got, _ := first.take(t); len(got) != 1 || !errors.Is(got[0].Err, err) || got[0].Word != "" {
		t.Errorf("told of %+v, and the caller of %v", got, err)
	}
	if first.lives != 0 {
		t.Errorf("%d other incarnations of one server", first.lives)
	}
	server.RestartEmpty()
	expect.Eventually(t, "the store answers again", func() bool {
		_, err := store.Run(ctx, scripts.Incarnation, []string{store.Key("incarnation", "store")})
		return err == nil
	})
	if first.lives != 1 || second.lives != 1 {
		t.Errorf("another server was noticed %d and %d times", first.lives, second.lives)
	}
}

// Riders of one flight are one call of as many as were added, and one more for each that was not.
func TestObserversAreToldOfRidersTogether(t *testing.T) {
	server := redistest.Start(t)
	watch := &watcher{}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Observers: []observe.Observer{watch}})
	life := lifeOf(t, store, "k")
	if err := server.Client().Set(t.Context(), "text", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	watch.take(t)
	line := pipeline.Of(store).Line(life)
	riders := make([]*rider, 5)
	for i, key := range []string{"a", "b", "text", "c", "d"} {
		riders[i] = &rider{pipeline.Addition{Key: key, By: 1, Life: life}, false, make(chan landing, 1), make(chan struct{})}
		line.Ride(riders[i])
	}
	for _, r := range riders {
		<-r.landed
	}
	calls, flown := watch.take(t)
	added, refused := 0, 0
	for _, call := range calls {
		expect.Equal(t, "operation of a call", call.Op, observe.OpIncrBy)
		if call.Err != nil {
			refused += call.N
		} else {
			added += call.N
		}
	}
	if added != 4 || refused != 1 || flown != 5 || len(calls) > len(riders) {
		t.Errorf("%d added, %d refused, %d flew, in %+v", added, refused, flown, calls)
	}
}

// Calls that come at once share flights, and what flew is what was called.
func TestFlightsCarryEveryCallOnce(t *testing.T) {
	server := redistest.Start(t)
	watch := &watcher{}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Observers: []observe.Observer{watch}})
	warm(t, store, 1)
	watch.take(t)
	const calls = 200
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			if _, err := bumped(t.Context(), store, "k"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	watch.mu.Lock()
	flights := len(watch.flights)
	watch.mu.Unlock()
	told, flown := watch.take(t)
	if len(told) != calls || flown != calls || flights >= calls {
		t.Errorf("%d calls, %d flew in %d flights", len(told), flown, flights)
	}
	shared := 0
	for _, call := range told {
		if call.Together > 1 {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no call knows of others in its flight")
	}
}

func TestPoolStatsTellOfConnections(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		warm(t, store, 3)
		p := store.PoolStats()
		if p.Open < 1 || p.Idle > p.Open || p.Hits+p.Misses < 1 || p.Pending != 0 || p.Timeouts != 0 {
			t.Errorf("PoolStats of an idle store that was used: got %+v, want open connections, uses, and none pending", p)
		}
	})
}
