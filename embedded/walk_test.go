//go:build steps

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// walked is a store whose clients are at points before each request and before each reply. Inside
// it there are none: a command, or a script with its calls, holds the one lock from its beginning
// to its end, and so does the sweep of what has expired.
type walked struct {
	t      *testing.T
	own    *embedded.Store
	client *redis.Client

	mu     sync.Mutex
	faults []error
}

func newWalked(t *testing.T) *walked {
	t.Helper()
	silence()
	own, err := embedded.Open(embedded.Config{})
	expect.NoError(t, "Open", err)
	return &walked{t: t, own: own, client: storetest.AtRequests(redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return own.Dial(ctx) },
	}))}
}

// silence has go-redis not log that a closed store cannot be dialed.
var silence = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (w *walked) fault(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, err)
}

func (w *walked) play(check func() error, tasks ...walk.Task) walk.Play {
	return walk.Play{
		Tasks: tasks,
		Check: func() error { return errors.Join(append(w.faults, check())...) },
		Close: func() {
			if err := errors.Join(w.client.Close(), w.own.Close()); err != nil {
				w.t.Errorf("Close: %v", err)
			}
		},
	}
}

// next is a script that would lose an increment if another command came between its calls.
const next = `local n = tonumber(redis.call('GET', KEYS[1]) or '0') + 1
redis.call('SET', KEYS[1], n)
return n`

// scripts has callers run the script so many times each, while another one reads.
func scripts(times ...int) func(*testing.T) walk.Play {
	return func(t *testing.T) walk.Play {
		w, got := newWalked(t), make([][]int, len(times))
		var want, read []int
		var tasks []walk.Task
		for i, n := range times {
			for range n {
				want = append(want, len(want)+1)
			}
			tasks = append(tasks, walk.Task{Name: fmt.Sprintf("caller %d", i), Do: func() {
				for range n {
					value, err := w.client.Eval(context.Background(), next, []string{"k"}).Int()
					if err != nil {
						w.fault(err)
					}
					got[i] = append(got[i], value)
				}
			}})
		}
		tasks = append(tasks, walk.Task{Name: "reader", Do: func() {
			for range 2 {
				value, err := w.client.Get(context.Background(), "k").Int()
				if err != nil && !errors.Is(err, redis.Nil) {
					w.fault(err)
				}
				read = append(read, value)
			}
		}})
		return w.play(func() error {
			all := slices.Concat(got...)
			slices.Sort(all)
			if !slices.Equal(all, want) || slices.ContainsFunc(got, func(of []int) bool { return !slices.IsSorted(of) }) || !slices.IsSorted(read) {
				return fmt.Errorf("scripts returned %v, and a reader got %v", got, read)
			}
			return nil
		}, tasks...)
	}
}

// claim is when a caller asked for a key that was granted, and when it had the reply.
type claim struct{ sent, replied time.Time }

// claims has callers take a key that expires, which one can do at a time.
func claims(callers int) func(*testing.T) walk.Play {
	return func(t *testing.T) walk.Play {
		w := newWalked(t)
		var granted []claim
		tasks := make([]walk.Task, callers)
		for i := range tasks {
			tasks[i] = walk.Task{Name: fmt.Sprintf("caller %d", i), Do: func() {
				sent := time.Now()
				ok, err := w.client.SetNX(context.Background(), "k", i, embedded.MinTTL).Result()
				if err != nil {
					w.fault(err)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if ok {
					granted = append(granted, claim{sent, time.Now()})
				}
			}}
		}
		return w.play(func() error {
			if len(granted) == 0 {
				return errors.New("nobody had the key")
			}
			for i, a := range granted {
				for _, b := range granted[:i] {
					if a.replied.Sub(b.sent) < embedded.MinTTL && b.replied.Sub(a.sent) < embedded.MinTTL {
						return fmt.Errorf("two had the key at once: %v and %v", b, a)
					}
				}
			}
			return nil
		}, tasks...)
	}
}

// unread has a subscriber that reads nothing, which stops neither who publishes nor others.
func unread(t *testing.T) walk.Play {
	w := newWalked(t)
	slow, err := w.own.Dial(t.Context())
	expect.NoError(t, "Dial", err)
	if _, err := slow.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n")); err != nil {
		t.Fatalf("SUBSCRIBE: %v", err)
	}
	synctest.Wait()
	receivers := make([]int64, 2)
	return w.play(func() error {
		if receivers[0] != 1 || receivers[1] != 1 {
			return fmt.Errorf("messages reached %v subscribers, want 1 each", receivers)
		}
		return nil
	}, walk.Task{Name: "publisher", Do: func() {
		for i := range receivers {
			n, err := w.client.Publish(context.Background(), "c", "m").Result()
			if err != nil {
				w.fault(err)
			}
			receivers[i] = n
		}
	}}, walk.Task{Name: "caller", Do: func() {
		if err := w.client.Incr(context.Background(), "k").Err(); err != nil {
			w.fault(err)
		}
	}})
}

// closed has the store end while calls are under way: each has its reply or fails, and none hangs.
func closed(t *testing.T) walk.Play {
	w := newWalked(t)
	var got []int
	return w.play(func() error {
		for i, value := range got {
			if value != i+1 {
				return fmt.Errorf("scripts returned %v", got)
			}
		}
		return nil
	}, walk.Task{Name: "caller", Do: func() {
		for range 2 {
			value, err := w.client.Eval(context.Background(), next, []string{"k"}).Int()
			if err != nil {
				return
			}
			got = append(got, value)
		}
	}}, walk.Task{Name: "closer", Do: func() {
		if err := w.own.Close(); err != nil {
			w.fault(err)
		}
	}})
}

func TestWalkEveryOrderOfAnEmbeddedStore(t *testing.T) {
	for name, scene := range map[string]walk.Scene{
		"scripts":                  {Begin: scripts(1, 1)},
		"a key that expires":       {Ticks: 1, Tick: embedded.MinTTL, Begin: claims(2)},
		"a subscriber reads not":   {Begin: unread},
		"a store ends under calls": {Begin: closed},
	} {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

func TestWalkRandomOrdersOfAnEmbeddedStore(t *testing.T) {
	for name, scene := range map[string]walk.Scene{
		"scripts":                  {Slow: true, Begin: scripts(2, 3, 1)},
		"a key that expires":       {Slow: true, Ticks: 3, Tick: embedded.MinTTL / 2, Begin: claims(4)},
		"a subscriber reads not":   {Slow: true, Begin: unread},
		"a store ends under calls": {Slow: true, Begin: closed},
	} {
		t.Run(name, func(t *testing.T) { walk.Rounds(t, scene) })
	}
}
