//go:build check

package outages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

const (
	callers = 16
	timeout = 200 * time.Millisecond // of a call
	stands  = 300 * time.Millisecond // that Redis stands still for
)

// cuts are what happens to requests. With Pass it is Redis that stands still.
var cuts = []struct {
	name string
	fate redistest.Fate
}{
	{"connection cut before the request arrives", redistest.CutBefore},
	{"connection cut before the reply", redistest.CutAfter},
	{"request swallowed", redistest.Swallow},
	{"Redis stands still, and goes on", redistest.Pass},
}

// verdict is what a caller was told of his call.
type verdict int

const (
	done verdict = iota
	refused
	unknown
)

// way is how calls are made: each adds one to a key.
type way struct {
	who  string
	open func(t *testing.T, url string) (call func(ctx context.Context, name string) verdict)
	key  func(name string) string
}

var ours = way{evidence.Ours, func(t *testing.T, url string) func(context.Context, string) verdict {
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: url, Timeout: timeout})
	expect.NoError(t, "redisstore.OpenConfig", err)
	counters := counter.New(store, counter.Config{})
	t.Cleanup(func() { _, _ = counters.Close(), store.Close() })
	return func(ctx context.Context, name string) verdict {
		_, err := counters.Incr(ctx, name)
		switch {
		case err == nil:
			return done
		case errors.Is(err, redisstore.ErrUnknownOutcome):
			return unknown
		}
		return refused
	}
}, func(name string) string { return "coatcheck:counter:{" + name + "}" }}

// repeating is go-redis with its default, three more tries.
var repeating = way{"go-redis by default", func(t *testing.T, url string) func(context.Context, string) verdict {
	options, err := redis.ParseURL(url)
	expect.NoError(t, "ParseURL", err)
	options.ReadTimeout = timeout
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return func(ctx context.Context, name string) verdict {
		if client.Incr(ctx, name).Err() != nil {
			return unknown
		}
		return done
	}
}, func(name string) string { return name }}

// wrong says what is not true of a verdict about a call that ran so many times; "" if it is.
func wrong(reported verdict, ran int64) string {
	switch {
	case ran > 1:
		return "it ran more than once"
	case reported == done && ran == 0:
		return "it was done, and did not run"
	case reported == refused && ran > 0:
		return "it was refused, and ran"
	}
	return ""
}

func TestWrongVerdictsAreFound(t *testing.T) {
	for _, row := range []struct {
		reported verdict
		ran      int64
		want     bool
	}{{done, 1, false}, {done, 0, true}, {done, 2, true}, {refused, 0, false}, {refused, 1, true}, {unknown, 0, false}, {unknown, 1, false}, {unknown, 2, true}} {
		if got := wrong(row.reported, row.ran); (got != "") != row.want {
			t.Errorf("%v that ran %d times: got %q", row.reported, row.ran, got)
		}
	}
}

// Every answer is true, whatever becomes of requests and replies.
func TestEveryAnswerIsTrue(t *testing.T) {
	for _, row := range ours.cutAll(t) {
		if row.Violations > 0 {
			t.Errorf("%s: got %d wrong answers in %d calls, want none", row.Fault, row.Violations, row.Operations)
		}
	}
}

// A client that repeats what failed is found to do it twice.
func TestRepeatingClientIsFoundToDoThingsTwice(t *testing.T) {
	twice := int64(0)
	for _, row := range repeating.cutAll(t) {
		twice += row.Violations
	}
	if twice == 0 {
		t.Error("nothing was found")
	}
}

// cutAll has callers call while each kind of fault strikes, and writes down what was found.
func (w way) cutAll(t *testing.T) (rows []evidence.Row) {
	t.Helper()
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			row := w.cut(t, cut.fate)
			row.Suite, row.Promise, row.Layer = "outages", evidence.Outages, evidence.InProcess
			row.Who, row.Peer, row.Fault = w.who, w.who != evidence.Ours, cut.name
			chaostest.Prove(t, row)
			t.Logf("%d faults, %d calls, %d wrong", row.Faults, row.Operations, row.Violations)
			if want := enough(cut.fate); row.Faults < want {
				t.Errorf("%d faults, want %d", row.Faults, want)
			}
			rows = append(rows, row)
		})
	}
	return rows
}

// enough is how many faults are wanted; fewer of those that take a third of a second each.
func enough(fate redistest.Fate) int64 {
	if fate == redistest.Pass {
		return int64(*wanted+7) / 8
	}
	return int64(*wanted)
}

// cut makes calls until there were enough faults of one kind, and judges each of them.
func (w way) cut(t *testing.T, fate redistest.Fate) (row evidence.Row) {
	server := redistest.Start(t)
	lot := chaostest.NewLot(t)
	var mu sync.Mutex // of lot
	var faults atomic.Int64
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		mu.Lock()
		defer mu.Unlock()
		if fate == redistest.Pass || !bytes.Contains(request, []byte("call-")) || lot.IntN(3) > 0 {
			return redistest.Pass, nil
		}
		faults.Add(1)
		return fate, nil
	})
	call := w.open(t, proxy.URL())
	var all sync.WaitGroup
	verdicts := make([]map[string]verdict, callers)
	for i := range callers {
		verdicts[i] = map[string]verdict{}
		all.Go(func() {
			for n := 0; faults.Load() < enough(fate); n++ {
				name := fmt.Sprintf("call-%d-%d", i, n)
				verdicts[i][name] = call(t.Context(), name)
				time.Sleep(time.Millisecond)
			}
		})
	}
	for fate == redistest.Pass && faults.Load() < enough(fate) {
		time.Sleep(20 * time.Millisecond)
		server.Pause()
		time.Sleep(stands)
		server.Resume()
		faults.Add(1)
	}
	all.Wait()
	for _, calls := range verdicts {
		for name, said := range calls {
			ran, err := server.Client().Get(t.Context(), w.key(name)).Int64()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatalf("reading %s back: %v", name, err)
			}
			row.Operations++
			if what := wrong(said, ran); what != "" {
				row.Violations++
				if w.who == evidence.Ours {
					t.Errorf("%s: %s: told %v, ran %d times", name, what, said, ran)
				}
			}
		}
	}
	row.Faults = faults.Load()
	return row
}
