package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
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
	batches []observe.Batch
	lives   int
	marked  []bool // whether each call ended with a context that it had marked
}

func (w *watcher) observer() observe.Observer {
	return observe.Observer{CallStarted: w.CallStarted, CallEnded: w.CallEnded, BatchEnded: w.BatchEnded, IncarnationChanged: w.IncarnationChanged}
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

func (w *watcher) BatchEnded(batch observe.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = append(w.batches, batch)
}

func (w *watcher) IncarnationChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
}

// take returns what was told since it was asked last: the calls without their durations, which are
// only looked at, and how many calls flew.
func (w *watcher) take(t testing.TB) (calls []observe.Call, carried int) {
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
	for _, batch := range w.batches {
		carried += batch.Calls
	}
	w.began, w.calls, w.batches, w.marked = nil, nil, nil, nil
	return calls, carried
}

func TestObserversAreToldOfEveryCall(t *testing.T) {
	server := redistest.Start(t)
	first, second := &watcher{name: "first"}, &watcher{name: "second"}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 10 * time.Second, Observers: []observe.Observer{first.observer(), {}, second.observer()}})
	ctx := t.Context()
	warm(t, store, 1)
	first.take(t)
	second.take(t)

	at, err := tryFind(t, store, "k")
	expect.NoError(t, "opening a counter", err)
	mustIncr(t, store, "k", 3, at, 3)
	expect.NoError(t, "SET", server.Client().Set(ctx, onstore.Key(store, "test", "text"), "text", 0).Err())
	_, refusal := incrBy(t, store, "text", 1, at)
	want := []observe.Call{
		{Op: "counter_open", N: 1, Word: "ok", Together: 1}, {Op: observe.OpIncrBy, N: 1, Together: 1}, {Op: observe.OpIncrBy, N: 1,
			Err: refusal, Together: 1},
	}
	if !slices.Equal(first.marked, []bool{true, true, true}) || !slices.Equal(first.began, []string{"counter_open", "incrby", "incrby"}) {
		t.Errorf("calls ended with contexts that were begun %v for %v", first.marked, first.began)
	}
	for _, w := range []*watcher{first, second} {
		if got, carried := w.take(t); !slices.Equal(got, want) || carried < 3 {
			t.Errorf("%s was told of %+v, and %d were carried; want %+v", w.name, got, carried, want)
		}
	}

	server.Stop()
	_, err = onstore.Run(ctx, store, scripts.Incarnation, []string{onstore.Key(store, "incarnation", "store")})
	if got, _ := first.take(t); len(got) != 1 || !errors.Is(got[0].Err, err) || got[0].Word != "" {
		t.Errorf("told of %+v, and the caller of %v", got, err)
	}
	expect.Equal(t, "other incarnations of one server", first.lives, 0)
	server.RestartEmpty()
	nextIncarnation(t, store, at)
	if first.lives != 1 || second.lives != 1 {
		t.Errorf("another server was noticed %d and %d times", first.lives, second.lives)
	}
}

// Increments of keys in one pipeline are one call of as many as were added, and one more for each
// that was not.
func TestObserversAreToldOfKeysTogether(t *testing.T) {
	server := redistest.Start(t)
	watch := &watcher{}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Observers: []observe.Observer{watch.observer()}})
	at := find(t, store, "k")
	expect.NoError(t, "SET", server.Client().Set(t.Context(), "text", "text", 0).Err())
	watch.take(t)
	queue := pipeline.Of(store).Queue(at.Place)
	pending := make([]*pendingKey, 5)
	for i, key := range []string{"a", "b", "text", "c", "d"} {
		pending[i] = &pendingKey{pipeline.Addition{Key: key, By: 1, Place: at.Place, Marker: at.Marker}, false, make(chan result, 1),
			make(chan struct{})}
		queue.Submit(pending[i])
	}
	for _, p := range pending {
		<-p.done
	}
	calls, carried := watch.take(t)
	added, refused := 0, 0
	for _, call := range calls {
		expect.Equal(t, "operation of a call", call.Op, observe.OpIncrBy)
		if call.Err != nil {
			refused += call.N
		} else {
			added += call.N
		}
	}
	if added != 4 || refused != 1 || carried != 5 || len(calls) > len(pending) {
		t.Errorf("%d added, %d refused, %d were carried, in %+v", added, refused, carried, calls)
	}
}

// Calls that come at once share pipelines, which carry each call once.
func TestPipelinesCarryEveryCallOnce(t *testing.T) {
	server := redistest.Start(t)
	watch := &watcher{}
	store := storetest.Open(t, redisstore.Config{URL: server.URL(), Observers: []observe.Observer{watch.observer()}})
	warm(t, store, 1)
	watch.take(t)
	const calls = 200
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			if _, err := bumped(t.Context(), store, "k"); err != nil {
				t.Errorf("adding one to a record: got error %v, want none", err)
			}
		})
	}
	all.Wait()
	watch.mu.Lock()
	batches := len(watch.batches)
	watch.mu.Unlock()
	told, carried := watch.take(t)
	if len(told) != calls || carried != calls || batches >= calls {
		t.Errorf("%d calls, %d were carried in %d pipelines", len(told), carried, batches)
	}
	shared := 0
	for _, call := range told {
		if call.Together > 1 {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no call knows of others in its pipeline")
	}
}

func TestPoolStatsTellOfConnections(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		warm(t, store, 3)
		p := store.PoolStats()
		if p.TotalConns < 1 || p.IdleConns > p.TotalConns || p.Hits+p.Misses < 1 || p.PendingRequests != 0 || p.Timeouts != 0 {
			t.Errorf("PoolStats of an idle store that was used: got %+v, want open connections, uses, and none pending", p)
		}
	})
}

// A call that waits for a connection until its time is over is counted: an alert asks for it.
func TestWaitForAConnectionInVainIsCounted(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL() + "?pool_size=1", Timeout: time.Second})
	warm(t, store, 1)
	server.Pause()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			_, _ = onstore.Run(t.Context(), store.WithAck(0), scripts.NameList, []string{onstore.Key(store, "names", "k")}, "", "", 1)
		})
	}
	calls.Wait()
	server.Resume()
	if p := store.PoolStats(); p.Timeouts == 0 {
		t.Errorf("PoolStats after calls that got no connection: got %+v, want Timeouts", p)
	}
}
