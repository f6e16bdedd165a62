//go:build check

package client_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// tight has one id a millisecond for each worker id, so that two holders of one can hardly miss
// each other.
const tight = "41/3/0"

// tightTTL is stated by all of them: after a loss of all state it bounds how long nothing is
// granted.
const tightTTL = 900 * time.Millisecond

// stampers are programs that hold a worker id each over HTTP, and stamp with it.
type stampers struct {
	t    testing.TB
	url  string
	stop context.CancelFunc
	ctx  context.Context
	all  sync.WaitGroup

	stamped atomic.Int64

	mu  sync.Mutex
	ids [][]snowflake.ID
}

// hold stamps until the end, with whatever worker id it has.
func (s *stampers) hold(identity string) {
	s.all.Go(func() {
		c := connect(s.t, s.url)
		h := c.StartWorker(s.ctx, "orders", client.WorkerRequest{TTL: tightTTL, Identity: identity}, client.HoldOptions{})
		g := generator(s.t, h)
		var ids []snowflake.ID
		for s.ctx.Err() == nil {
			ids = append(ids, s.stamp(g)...)
		}
		_ = h.Release(context.WithoutCancel(s.ctx), g.Stop()) // the service may be away
		s.note(ids)
	})
}

// come leases, stamps, gives back, and comes again: it gets what is free, as soon as it is.
func (s *stampers) come() {
	s.all.Go(func() {
		c := connect(s.t, s.url)
		var ids []snowflake.ID
		for s.ctx.Err() == nil {
			h, err := c.HoldWorker(s.ctx, "orders", client.WorkerRequest{TTL: tightTTL}, client.HoldOptions{Once: true, Wait: -1})
			if err != nil {
				pause(s.ctx)
				continue
			}
			g := generator(s.t, h)
			for range 20 {
				ids = append(ids, s.stamp(g)...)
			}
			_ = h.Release(context.WithoutCancel(s.ctx), g.Stop()) // the service may be away
		}
		s.note(ids)
	})
}

func (s *stampers) stamp(g *snowflake.Generator) []snowflake.ID {
	id, err := g.Next(s.ctx)
	if err != nil {
		pause(s.ctx)
		return nil
	}
	s.stamped.Add(1)
	return []snowflake.ID{id}
}

func (s *stampers) note(ids []snowflake.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, ids)
}

func generator(t testing.TB, h *client.Holder) *snowflake.Generator {
	t.Helper()
	g, err := snowflake.New(h, snowflake.Config{})
	must(t, "making a generator", err)
	return g
}

// pause gives others their turn.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Millisecond):
	}
}

// Programs stamp over all that can happen to the service and to its Redis; no id is there twice.
func TestNoIDTwiceOverHTTP(t *testing.T) {
	redis := redistest.Start(t)
	config := workerlease.Config{Skew: 100 * time.Millisecond, LongestTTL: tightTTL}
	open := func() server.Config {
		return server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Second}), Workers: config}
	}
	s := serveWith(t, open())
	_, err := s.CreatePool(t.Context(), "orders", client.PoolShape{TTL: tightTTL, Layout: tight})
	must(t, "CreatePool", err)
	all := &stampers{t: t, url: s.url}
	all.ctx, all.stop = context.WithCancel(t.Context())
	defer all.stop()
	for _, identity := range []string{"a", "b", "c", "d"} {
		all.hold(identity)
	}
	for range 2 {
		all.come()
	}
	renewed := func(times int) {
		t.Helper()
		from := s.proxy.count("renew")
		expect.Eventually(t, "renewals", func() bool { return s.proxy.count("renew") >= from+times })
	}
	granted := func() {
		t.Helper()
		expect.Eventually(t, "grants", func() bool {
			lease, err := s.AcquireWorker(t.Context(), "orders", client.WorkerRequest{TTL: tightTTL})
			return err == nil && s.ReleaseWorker(t.Context(), lease, lease.NotBefore) == nil
		})
	}
	renewed(10)
	for _, lose := range []fault{loseReply, hangUp, cutOff, says(503, "application/problem+json", `{"code":"store-unavailable"}`)} {
		s.proxy.disturb(sometimes(lose))
		renewed(20)
	}
	s.proxy.disturb(nil)
	renewed(10)
	flush(t, redis)
	renewed(5)
	flush(t, redis) // once more while it is quarantined
	granted()
	renewed(10)
	// the service is gone for longer than a TTL, and another takes its place
	s.proxy.disturb(hangUp)
	time.Sleep(time.Second)
	other := serveWith(t, open())
	s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		other.proxy.service.ServeHTTP(w, r)
		return true
	})
	granted()
	renewed(10)
	redis.RestartEmpty()
	granted()
	renewed(10)
	expect.Eventually(t, "2,000 ids are stamped", func() bool { return all.stamped.Load() >= 2000 })
	all.stop()
	all.all.Wait()
	once(t, all.ids...)
}

// flush empties a server.
func flush(t testing.TB, redis *redistest.Server) {
	t.Helper()
	must(t, "FLUSHALL", redis.Client().FlushAll(t.Context()).Err())
}

// sometimes lets two of three requests pass.
func sometimes(with fault) fault {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		return n.Add(1)%3 == 0 && with(w, r, service)
	}
}
