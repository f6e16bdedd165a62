package health_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// looks counts calls to the store.
type looks struct {
	mu sync.Mutex
	n  int
}

func (l *looks) CallStarted(ctx context.Context, _ string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return ctx
}

func titleOf(err error) string {
	if errors.Is(err, redisstore.ErrUnavailable) {
		return "away"
	}
	return "failed"
}

func checker(store *redisstore.Store, log *slog.Logger) *health.Checker {
	return health.New(health.Config{Store: store, Title: titleOf, Changed: func(context.Context, health.Incarnation) {}, Stopping: new(atomic.Bool), Logger: log})
}

func TestProcessThatStopsSaysSoAndAsksNoStore(t *testing.T) {
	var stopping atomic.Bool
	stopping.Store(true)
	c := health.New(health.Config{Stopping: &stopping}) // it has no store to ask
	expect.Equal(t, "Check at a stop", c.Check(t.Context()), health.Answer{Class: "stopping", Reason: "stopping"})
}

func TestManyChecksAreOneLookASecond(t *testing.T) {
	count := &looks{}
	store := storetest.Open(t, redisstore.Config{URL: redistest.Start(t).URL(), Observers: []observe.Observer{{CallStarted: count.CallStarted}}})
	c := checker(store, slog.New(slog.DiscardHandler))
	began := time.Now()
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			for range 20 {
				gone, leave := context.WithCancel(t.Context())
				leave() // a caller that has left does not end the look
				if got := c.Check(gone); got.Reason != "" || got.Incarnation == "" {
					t.Errorf("Check: got %+v, want an incarnation and no reason", got)
				}
			}
		})
	}
	crowd.Wait()
	most := int(time.Since(began)/time.Second) + 1
	if count.n > most || count.n == 0 {
		t.Errorf("1000 checks in %v: got %d calls to the store, want 1 to %d", time.Since(began), count.n, most)
	}
}

func TestEndAndReturnOfAStoreAreLoggedOnce(t *testing.T) {
	redis := redistest.Start(t)
	log := &logtest.Text{}
	c := checker(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute}), log.Logger())
	expect.Equal(t, "reason of a store that works", c.Check(t.Context()).Reason, "")
	redis.Kill()
	expect.Eventually(t, "the store is seen to be away", func() bool { return c.Check(t.Context()).Reason == "away" })
	redis.Restart()
	expect.Eventually(t, "the store is seen to be back", func() bool { return c.Check(t.Context()).Reason == "" })
	expect.Equal(t, "lines that say that it is not ready, and ready again", [2]int{
		strings.Count(log.String(), `msg="not ready" reason=away`), strings.Count(log.String(), `msg="ready again"`),
	}, [2]int{1, 1})
}

// Since when a store is away is known only while somebody looks: it may have worked meanwhile.
func TestSinceIsOfTheLastOutage(t *testing.T) {
	redis := redistest.Start(t)
	c := checker(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Second}), slog.New(slog.DiscardHandler))
	redis.Kill()
	first := c.Check(t.Context()).Since
	expect.Equal(t, "since, asked again", c.Check(t.Context()).Since, first)
	c.Forget()
	expect.Equal(t, "since, looked again", c.Check(t.Context()).Since, first)
	c.LookedLongAgo()
	if next := c.Check(t.Context()).Since; !next.After(first) {
		t.Errorf("since, looked again after half a minute: got %v, want later than %v", next, first)
	}
}

// Every master that owns slots has to answer and to take writes, and the one that does not is
// named.
func TestEveryMasterOfAClusterIsAsked(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := checker(storetest.Open(t, redisstore.Config{URL: cluster.URL()}), slog.New(slog.DiscardHandler))
	wants := func(what string, want health.Answer) {
		t.Helper()
		expect.Eventually(t, what, func() bool {
			c.Forget()
			got := c.Check(t.Context())
			return got.Class == want.Class && got.Reason == want.Reason
		})
	}
	works := health.Answer{}
	wants("a cluster that works is ready", works)
	for _, node := range cluster.Nodes() {
		at := health.Answer{Class: "away", Reason: "away, at " + node.Addr()}
		client := node.Client()
		expect.MustEqual(t, "error of CONFIG SET", client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(), nil)
		wants("a master that takes no writes is named", at)
		expect.MustEqual(t, "error of CONFIG SET", client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(), nil)
		wants("the cluster is ready again", works)
	}
	node := cluster.Nodes()[1]
	node.Pause()
	wants("a master that does not answer is named", health.Answer{Class: "away", Reason: "away, at " + node.Addr()})
}

// What one master of a cluster has lost is found, whichever it is.
func TestLossOfAnyMasterOfAClusterIsFound(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	var changes atomic.Int64
	c := health.New(health.Config{
		Store: storetest.Open(t, redisstore.Config{URL: cluster.URL()}), Title: titleOf,
		Changed:  func(context.Context, health.Incarnation) { changes.Add(1) },
		Stopping: new(atomic.Bool), Logger: slog.New(slog.DiscardHandler),
	})
	expect.Equal(t, "reason of a cluster that works", c.Check(t.Context()).Reason, "")
	for i, node := range cluster.Nodes() {
		expect.MustEqual(t, "error of FLUSHALL", node.Client().FlushAll(t.Context()).Err(), nil)
		c.Forget()
		expect.Equal(t, "reason after a loss", c.Check(t.Context()).Reason, "")
		expect.Equal(t, "losses that were found", changes.Load(), int64(i+1))
	}
}

func TestAddressesOfThisMachine(t *testing.T) {
	for from, want := range map[string]bool{
		"127.0.0.1:80": true, "127.1.2.3:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"192.0.2.1:80": false, "[2001:db8::1]:80": false, "": false, "@": false, "localhost:80": false,
	} {
		expect.Equal(t, "a request from "+from+" is from this machine", health.FromThisMachine(&http.Request{RemoteAddr: from}), want)
	}
}
