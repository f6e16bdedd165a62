//go:build check

package counters

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

var lanes = flag.Int("lanes", 1, "servers that are broken at once for clients of this process, a round each")

const (
	members  = 2  // who count at a server, each with four clients
	perBurst = 20 // requests that are lost at a time
	holdOff  = time.Second
)

// lane is a Redis, and members of this process that count with it.
type lane struct {
	t      *testing.T
	server *redistest.Server
	folder string
	lot    *rand.Rand
	losses chaostest.Losses
	stages chaostest.Stages
}

// losses are what breaks.
var losses = []chaostest.Fault[*lane]{
	{Name: "everything in Redis lost", Strike: func(l *lane) { chaostest.Do(l.t, l.server, "FLUSHALL") }},
	{Name: "Redis back empty", Strike: func(l *lane) { l.server.RestartEmpty() }},
	{Name: "one counter lost", Strike: func(l *lane) {
		chaostest.Do(l.t, l.server, "DEL", keyOf(counterOf(2*l.lot.IntN(counters/2), moment()).String()))
	}},
	{Name: "connections cut before a request", Strike: func(l *lane) { l.lose(redistest.CutBefore) }},
	{Name: "connections cut before the reply", Strike: func(l *lane) { l.lose(redistest.CutAfter) }},
}

// lose has some requests lost, and returns when they are.
func (l *lane) lose(fate redistest.Fate) {
	l.losses.Lose(perBurst, fate)
	l.losses.Await(l.t)
}

// breakAll breaks everything in each round, and tells what was found.
func (l *lane) breakAll(role string) *findings {
	ctx, stop := context.WithCancel(l.t.Context())
	defer stop()
	proxy := l.losses.Link(l.t, l.server)
	var counting sync.WaitGroup
	var files []string
	for number := range members {
		name := filepath.Join(l.folder, fmt.Sprintf("%04d.record", number))
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		expect.NoError(l.t, "os.OpenFile", err)
		defer file.Close()
		adding, err := open(ctx, role, chaostest.Task{Store: proxy.URL()}, counter.Config{HoldOff: holdOff})
		expect.NoError(l.t, "opening a way to count", err)
		defer adding.Close()
		for range clients {
			counting.Go(func() { count(ctx, adding, file, number) })
		}
		files = append(files, name)
	}
	l.settle(files)
	chaostest.EachRound(l.t, l.lot, losses, func(loss chaostest.Fault[*lane]) {
		l.stages = append(l.stages, chaostest.Stage{From: moment(), Name: loss.Name})
		loss.Strike(l)
		l.settle(files)
	})
	stop()
	counting.Wait()
	return check(l.t, l.folder, l.stages)
}

// settle waits until each member has surely seen each counter again.
func (l *lane) settle(files []string) {
	for _, file := range files {
		want := chaostest.Size(file) + seen*incrementBytes
		chaostest.Await(l.t, time.Minute, func() string {
			if size := chaostest.Size(file); size < want {
				return fmt.Sprintf("%s has %d bytes, not %d", file, size, want)
			}
			return ""
		})
	}
}

// lose breaks some servers at once, and counts.
func lose(t *testing.T, role string) (twice int64) {
	t.Helper()
	lot := chaostest.NewLot(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range *lanes {
		l := &lane{t: t, server: redistest.Start(t), folder: t.TempDir(), lot: chaostest.Another(lot)}
		all.Go(func() {
			found := l.breakAll(role)
			mu.Lock()
			defer mu.Unlock()
			twice += found.twice.N
			for _, row := range found.rows(role, evidence.InProcess, l.stages) {
				if strings.HasPrefix(row.Fault, "connections cut") {
					row.Faults *= perBurst
				}
				chaostest.Prove(t, row)
			}
			t.Logf("%s: %v", role, found)
			if role == "ours" && found.twice.N+found.falling.N > 0 {
				t.Errorf("got values twice or falling, want none: %v", found)
			}
		})
	}
	all.Wait()
	return twice
}

// Servers that lose things, and requests and replies that are lost: no value is told twice.
func TestNoValueIsToldTwiceWhateverIsLost(t *testing.T) { lose(t, "ours") }

// INCR by go-redis is found to tell values twice by the same.
func TestPlainINCRIsFoundWhereThingsAreLost(t *testing.T) {
	if twice := lose(t, "plain"); twice == 0 {
		t.Error("nothing was found")
	}
}
