package workerlease_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A process that trusts restarts leases at once what is free; one that does not waits, and has
// others wait.
func TestTrustedRestartQuarantinesNoPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	on := func(restarts redisstore.Restarts) pools {
		store := storetest.Open(t, redisstore.Config{URL: server.URL(), Restarts: restarts})
		return pools{workerlease.New(store, workerlease.Config{}), store}
	}
	trusting := on(redisstore.RestartsTrust)
	expect.Error(t, "declaring the pool", trusting.Create(t.Context(), "p", of(2).Shape, of(2).TTL), nil)
	first := trusting.acquire(t, "p", of(2))
	server.Stop() // in order, so that the file is whole
	server.Restart()
	var second workerlease.Lease
	expect.Eventually(t, "the restarted Redis answers", func() (is bool) {
		lease, err := trusting.Acquire(t.Context(), "p", of(2))
		second = lease
		if err != nil && !errors.Is(err, redisstore.ErrUnavailable) {
			t.Fatalf("acquiring after a restart: %v", err)
		}
		return err == nil
	})
	expect.Equal(t, "the worker ids leased before and after", []int{first.WorkerID, second.WorkerID}, []int{0, 1})
	_, err := trusting.Renew(t.Context(), first, 0)
	expect.Error(t, "renewing the lease of before", err, nil)

	_, err = on(redisstore.RestartsWait).Acquire(t.Context(), "p", of(2))
	expect.Error(t, "acquiring without trust", err, workerlease.ErrQuarantined)
	_, err = trusting.Acquire(t.Context(), "p", of(2))
	expect.Error(t, "acquiring after a process that waits", err, workerlease.ErrQuarantined)
}

// A server that answers only once a write is on disk has lost nothing, so a restart costs nothing,
// unless none is believed.
func TestRestartOfADurableServerQuarantinesNoPool(t *testing.T) {
	t.Parallel()
	for restarts, want := range map[redisstore.Restarts]error{redisstore.RestartsAuto: nil, redisstore.RestartsWait: workerlease.ErrQuarantined} {
		t.Run(string(restarts), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			store := storetest.Open(t, redisstore.Config{URL: server.URL(), Restarts: restarts})
			p := pools{workerlease.New(store, workerlease.Config{}), store}
			expect.Error(t, "declaring the pool", p.Create(t.Context(), "p", of(2).Shape, of(2).TTL), nil)
			first := p.acquire(t, "p", of(2))
			server.Kill()
			server.Restart()
			second, err := p.answered(t, of(2))
			expect.Error(t, "acquiring after a restart", err, want)
			if want == nil && second.WorkerID == first.WorkerID {
				t.Errorf("worker id %d twice", first.WorkerID)
			}
		})
	}
}

// answered acquires from the pool p as soon as Redis answers.
func (p pools) answered(t *testing.T, request workerlease.Request) (lease workerlease.Lease, err error) {
	t.Helper()
	expect.Eventually(t, "Redis answers", func() bool {
		lease, err = p.Acquire(t.Context(), "p", request)
		return err == nil || errors.Is(err, workerlease.ErrQuarantined)
	})
	return lease, err
}

// A proxy keeps clients' connections while the server after it is replaced by a replica, which may
// have older data. Two processes are told to wait, and none gets the id of the other.
func TestPoolBehindAProxyThatKeepsConnections(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]bool{"a promotion": false, "a replica that was cut off and promoted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica := redistest.Start(t), redistest.Start(t)
			follow(t, replica, master)
			proxy := engines.Start(t, master.Addr(), engines.Engine{})
			process := func() pools {
				store := storetest.Open(t, redisstore.Config{URL: proxy.URL(), AckTimeout: 4 * time.Second})
				return pools{workerlease.New(store, workerlease.Config{}), store}
			}
			one, other := process(), process()
			expect.Error(t, "declaring the pool", one.Create(t.Context(), "p", of(2).Shape, of(2).TTL), nil)
			one.acquire(t, "p", of(2))
			follow(t, replica, master) // it has that
			if stale {
				do(t, replica, "REPLICAOF", "NO", "ONE")
			}
			other.acquire(t, "p", of(2))
			if !stale {
				follow(t, replica, master)
				do(t, replica, "REPLICAOF", "NO", "ONE")
			}
			connections := proxy.Accepted()
			proxy.Behind(replica.Addr())
			for _, p := range []pools{other, one} {
				_, err := p.answered(t, of(2))
				expect.Error(t, "acquiring from the server that came after", err, workerlease.ErrQuarantined)
			}
			expect.Equal(t, "connections that were made since", proxy.Accepted()-connections, 0)
		})
	}
}

// follow makes a server a replica of another, and waits until it has all that was written.
func follow(t *testing.T, replica, master *redistest.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	do(t, replica, "REPLICAOF", host, port)
	expect.Eventually(t, "the replica confirms writes", func() bool {
		conn := master.Client().Conn()
		defer conn.Close()
		_ = conn.Set(t.Context(), "follow", "x", 0).Err()
		n, err := conn.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && n == 1
	})
}

// do runs a command on a server itself.
func do(t *testing.T, server *redistest.Server, words ...any) {
	t.Helper()
	expect.Error(t, fmt.Sprint(words...), server.Client().Do(t.Context(), words...).Err(), nil)
}
