//go:build check

package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What a process is told by its environment.
const (
	redisVariable  = "CHAOS_REDIS"
	folderVariable = "CHAOS_FOLDER"
	numberVariable = "CHAOS_NUMBER"
	ackVariable    = "CHAOS_ACK"
)

// sceneFile says which names are used now: those with its text behind them.
const sceneFile = "scene"

// look is how often a holder looks at most whether it still has the lock.
const look = 3 * time.Millisecond

// wish is what a client asks for.
type wish struct {
	name    string
	shared  bool
	permits int           // of a lock with permits; else 0
	ttl     time.Duration // 0 = ttl
	wait    time.Duration // 0 = ten seconds
}

func (w wish) request() lock.Request {
	request := lock.Request{TTL: cmp.Or(w.ttl, ttl), Wait: cmp.Or(w.wait, 10*time.Second)}
	switch {
	case w.shared:
		request.Mode = lock.Shared
	case w.permits > 0:
		request.Permits, request.Capacity = w.permits, capacity
	}
	return request
}

// holding is a lock that a client has.
type holding interface {
	Fence() int64
	Err() error // nil while the client believes that it holds the lock
	Release(ctx context.Context) error
}

// locker is a way to lock.
type locker interface {
	acquire(ctx context.Context, w wish) (holding, error)
	lost(err error) bool // reports whether a release's error says that the lock had ended before
	close() error
}

// fenced is package lock.
type fenced struct {
	store *redisstore.Store
	locks *lock.Locks
}

func openFenced(ctx context.Context, config redisstore.Config, window time.Duration) (*fenced, error) {
	store, err := redisstore.OpenConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &fenced{store, lock.New(store, lock.Config{Window: window})}, nil
}

func (f *fenced) acquire(ctx context.Context, w wish) (holding, error) {
	held, err := f.locks.Acquire(ctx, w.name, w.request())
	if err != nil {
		return nil, err // and no holding that is nil inside
	}
	return held, nil
}

func (f *fenced) lost(err error) bool { return errors.Is(err, lock.ErrLost) }

func (f *fenced) close() error { return errors.Join(f.locks.Close(), f.store.Close()) }

// quorum is package lock over several servers.
type quorum struct{ locks *lock.QuorumLocks }

// openQuorum opens the locks of servers that lose nothing.
func openQuorum(ctx context.Context, urls []string) (*quorum, error) {
	locks, err := lock.OpenQuorum(ctx, urls, redisstore.Config{}, lock.Config{Window: window, AfterLoss: lock.GrantAfterLoss})
	return &quorum{locks}, err
}

func (q *quorum) acquire(ctx context.Context, w wish) (holding, error) {
	held, err := q.locks.Acquire(ctx, w.name, w.request())
	if err != nil {
		return nil, err // and no holding that is nil inside
	}
	return held, nil
}

func (q *quorum) lost(err error) bool { return errors.Is(err, lock.ErrLost) }

func (q *quorum) close() error { return q.locks.Close() }

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	url := os.Getenv(redisVariable)
	switch role {
	case "fenced":
		ack, err := strconv.Atoi(os.Getenv(ackVariable))
		if err != nil {
			return err
		}
		locks, err := openFenced(ctx, redisstore.Config{URL: url, Ack: ack}, window)
		if err != nil {
			return err
		}
		return take(ctx, locks, false)
	case "naive":
		locks, err := openNaive(url)
		if err != nil {
			return err
		}
		return take(ctx, locks, true)
	case "waiter":
		return standForever(ctx, url)
	case "naive run":
		return runNaively(ctx, url)
	case "command":
		return beat(os.Getenv(folderVariable))
	}
	return fmt.Errorf("no role is called %q", role)
}

// take has clients take locks, only exclusive ones if it is told so.
func take(ctx context.Context, locks locker, exclusive bool) error {
	number, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return err
	}
	journal, err := openJournal(os.Getenv(folderVariable), number)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range clients {
		c := &client{journal: journal, number: number*clients + i, locks: locks, folder: os.Getenv(folderVariable), exclusive: exclusive}
		all.Go(func() { c.live(ctx) })
	}
	all.Wait()
	return errors.Join(journal.close(), locks.close())
}

// client takes locks and gives them back.
type client struct {
	*journal

	number    int
	locks     locker
	folder    string
	exclusive bool // it asks for nothing else
}

func (c *client) live(ctx context.Context) {
	for ctx.Err() == nil {
		w := c.wish()
		asked := now()
		held, err := c.locks.acquire(ctx, w)
		if err != nil {
			time.Sleep(rand.N(5 * time.Millisecond))
			continue
		}
		c.grant(c.number, w, held.Fence(), asked, now())
		c.keep(ctx, held)
	}
}

// wish draws what to ask for, under the names of the scene.
func (c *client) wish() wish {
	scene, err := os.ReadFile(filepath.Join(c.folder, sceneFile))
	if err != nil {
		panic(err) // it is there before any process is
	}
	lot := rand.IntN(10)
	switch {
	case c.exclusive || lot < 4:
		return wish{name: "exclusive-" + string(scene)}
	case lot < 7:
		return wish{name: "shared-" + string(scene), shared: rand.IntN(3) > 0}
	}
	return wish{name: "permits-" + string(scene), permits: 1 + rand.IntN(2)}
}

// keep holds a lock for a while and gives it back.
func (c *client) keep(ctx context.Context, held holding) {
	span := rand.N(5 * time.Millisecond)
	switch lot := rand.IntN(100); {
	case lot < 4:
		span = ttl/2 + rand.N(ttl)
	case lot < 20:
		span = rand.N(50 * time.Millisecond)
	}
	start := time.Now()
	for {
		at := now()
		if held.Err() != nil {
			c.end(c.number, "lost", at, now())
			_ = held.Release(ctx) // what is left of it
			return
		}
		c.still(c.number, at)
		if time.Since(start) >= span || ctx.Err() != nil {
			break
		}
		time.Sleep(min(look, span))
	}
	at := now()
	err := held.Release(ctx)
	switch {
	case err == nil:
		c.end(c.number, "released", at, now())
	case c.locks.lost(err):
		c.end(c.number, "lost", at, now())
	default: // it was given back, or ends by itself, at an unknown time
		c.end(c.number, "unknown", at, never)
	}
}

func now() int64 { return time.Now().UnixNano() }
