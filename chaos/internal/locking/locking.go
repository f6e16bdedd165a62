// Package locking has the clients of a process take locks, give them back and write down what they
// do: those of chaos/locks, and the peers of chaos/peers.
package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// SceneFile says which names are used now: those with its text behind them.
const SceneFile = "scene"

// TTL is that of every lease, and Clients are how many a process has.
const (
	TTL     = time.Second
	Clients = 4
)

// look is how often a holder looks at most whether it still has the lock.
const look = 3 * time.Millisecond

// Wish is what a client asks for.
type Wish struct {
	Name    string
	Shared  bool
	Permits int           // of a lock with permits; else 0
	TTL     time.Duration // 0 = TTL
	Wait    time.Duration // 0 = ten seconds
}

// Holding is a lock that a client has.
type Holding interface {
	Fence() int64
	Err() error // nil while the client believes that it holds the lock
	Release(ctx context.Context) error
}

// Locker is a way to lock.
type Locker interface {
	Acquire(ctx context.Context, w Wish) (Holding, error)
	Lost(err error) bool // reports whether a release's error says that the lock had ended before
	Close() error
}

// Now is what journals have for a moment.
func Now() int64 { return time.Now().UnixNano() }

// Play has clients take locks until the process is asked to end, only exclusive ones if it is told
// so. In the task's file there is a byte for each grant, beside it all that clients do.
func Play(exclusive bool, open func(ctx context.Context, task chaostest.Task) (Locker, error)) error {
	return chaostest.Work(func(ctx context.Context, task chaostest.Task) error {
		locks, err := open(ctx, task)
		if err != nil {
			return err
		}
		file, err := os.OpenFile(JournalFile(task.File.Name()), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		for i := range Clients {
			c := &client{journal: &journal{file, task.File}, number: task.Number*Clients + i, locks: locks, exclusive: exclusive}
			all.Go(func() { c.live(ctx) })
		}
		all.Wait()
		return errors.Join(file.Close(), locks.Close())
	})
}

// client takes locks and gives them back.
type client struct {
	*journal

	number    int
	locks     Locker
	exclusive bool // it asks for nothing else
}

func (c *client) live(ctx context.Context) {
	for ctx.Err() == nil {
		w := c.wish()
		asked := Now()
		held, err := c.locks.Acquire(ctx, w)
		if err != nil {
			time.Sleep(rand.N(5 * time.Millisecond))
			continue
		}
		c.grant(c.number, w, held.Fence(), asked, Now())
		c.keep(ctx, held)
	}
}

// wish draws what to ask for, under the names of the scene.
func (c *client) wish() Wish {
	scene, err := os.ReadFile(filepath.Join(filepath.Dir(c.file.Name()), SceneFile))
	if err != nil {
		panic(err) // it is there before any process is
	}
	lot := rand.IntN(10)
	switch {
	case c.exclusive || lot < 4:
		return Wish{Name: "exclusive-" + string(scene)}
	case lot < 7:
		return Wish{Name: "shared-" + string(scene), Shared: rand.IntN(3) > 0}
	}
	return Wish{Name: "permits-" + string(scene), Permits: 1 + rand.IntN(2)}
}

// keep holds a lock for a while and gives it back.
func (c *client) keep(ctx context.Context, held Holding) {
	span := rand.N(5 * time.Millisecond)
	switch lot := rand.IntN(100); {
	case lot < 4:
		span = TTL/2 + rand.N(TTL)
	case lot < 20:
		span = rand.N(50 * time.Millisecond)
	}
	start := time.Now()
	for {
		at := Now()
		if held.Err() != nil {
			c.end(c.number, "lost", at, Now())
			_ = held.Release(ctx) // what is left of it
			return
		}
		c.still(c.number, at)
		if time.Since(start) >= span || ctx.Err() != nil {
			break
		}
		time.Sleep(min(look, span))
	}
	at := Now()
	err := held.Release(ctx)
	switch {
	case err == nil:
		c.end(c.number, "released", at, Now())
	case c.locks.Lost(err):
		c.end(c.number, "lost", at, Now())
	default: // it was given back, or ends by itself, at an unknown time
		c.end(c.number, "unknown", at, math.MaxInt64)
	}
}

// journal is the file in which a process writes what its clients do, a line each in one call, so
// that one that is killed leaves whole lines. Another file has a byte for each grant, for those who
// want to see that there is one.
type journal struct{ file, grants *os.File }

// JournalFile lies beside the file of a process.
func JournalFile(file string) string { return file + ".log" }

func (j *journal) linef(format string, args ...any) {
	if _, err := fmt.Fprintf(j.file, format+"\n", args...); err != nil {
		panic(err) // a history with holes proves nothing
	}
}

// grant says that a client was granted something, between two moments.
func (j *journal) grant(client int, w Wish, fence, asked, got int64) {
	j.linef("grant %d %s %t %d %d %d %d", client, w.Name, w.Shared, w.Permits, fence, asked, got)
	if _, err := j.grants.Write([]byte{'.'}); err != nil {
		panic(err)
	}
}

// still records that a client had its grant at a moment.
func (j *journal) still(client int, at int64) { j.linef("still %d %d", client, at) }

// end says how a client's grant ended, between two moments.
func (j *journal) end(client int, how string, from, to int64) {
	j.linef("end %d %s %d %d", client, how, from, to)
}
