package pipeline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/scripts"
)

// late is a server that answers each script after half a second.
func late(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		queue, err := in.ReadString('\n')
		switch {
		case err != nil:
			return
		case queue == "evalsha\r\n":
			time.AfterFunc(500*time.Millisecond, func() { _, _ = io.WriteString(conn, "*1\r\n$2\r\nok\r\n") })
		case strings.EqualFold(queue, "hello\r\n"):
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		}
	}
}

// Two calls of one pipeline have each their own time: one is told at its end, and the other one
// gets its answer.
func TestCallsOfOneFlightHaveTheirOwnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := New(Config{Timeout: time.Second, Classify: func(_ context.Context, _ string, err error, _, _ bool) error { return err }})
		engine.Serve(redisconn.Safe(&redis.Options{Addr: "127.0.0.1:1"}, time.Second))
		store := &engine
		defer store.Close()
		node := redis.NewClient(redisconn.Safe(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go late(far)
			return near, nil
		}}, time.Second))
		defer node.Close()
		shared := store.batchers.to(destination{node, 0}, store)
		began := time.Now()
		var all sync.WaitGroup
		for _, call := range []struct{ limit, ends time.Duration }{{300 * time.Millisecond, 300 * time.Millisecond}, {time.Second, 500 * time.Millisecond}} {
			request := store.request(scripts.OperationGet, []string{"k"}, nil, nil)
			request.call.deadline = began.Add(call.limit)
			job := request.call.waiting(request.words)
			shared.waiting = append(shared.waiting, job)
			all.Go(func() {
				reply, err := shared.wait(t.Context(), job)
				if took := time.Since(began).Round(time.Millisecond); took != call.ends {
					t.Errorf("a call with %v: ended after %v with %q and error %v, want it to end after %v", call.limit, took, reply, err, call.ends)
				}
				if inTime := call.limit > 500*time.Millisecond; errors.Is(err, context.DeadlineExceeded) == inTime {
					t.Errorf("a call with %v: got %q and error %v, want that it is answered: %v", call.limit, reply, err, inTime)
				}
			})
		}
		shared.batches++
		shared.sendBatches()
		all.Wait()
	})
}

// Calls that came together share a timer: each ends at its own deadline or a little before it, but
// after a pipeline of such calls has ended, and never after its deadline.
func TestCallsThatCameTogetherEndAtTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		store := &Engine{batchers: newBatchers(), timeout: timeout}
		silent := store.batchers.to(destination{nil, 0}, store)
		began := time.Now()
		var all sync.WaitGroup
		for came := time.Duration(0); came < 100*time.Millisecond; came += 3 * time.Millisecond {
			all.Go(func() {
				time.Sleep(came)
				request := store.request(scripts.OperationGet, []string{"k"}, nil, nil)
				_, err := silent.wait(t.Context(), request.call.waiting(request.words))
				took := time.Since(began) - came
				if !errors.Is(err, context.DeadlineExceeded) || took > timeout || took < timeout-timeout/50 {
					t.Errorf("a call that came after %v: ended after %v with error %v, want it to end after 980 ms to %v, with its deadline", came, took, err, timeout)
				}
			})
		}
		all.Wait()
	})
}

// What a call waits for because of others has a bound in bytes: calls that are just not large do
// not go all together.
func TestPipelineHasABudgetOfBytes(t *testing.T) {
	store := &Engine{batchers: newBatchers(), timeout: time.Second}
	shared := store.batchers.to(destination{nil, 0}, store)
	shared.batches = maxBatches // so that no other takes calls
	const calls = 150
	for i := range calls {
		text := strings.Repeat("x", largeCall-1000)
		if i%3 == 0 {
			text = "small"
		}
		request := store.request(scripts.OperationGet, []string{"k"}, []any{text}, nil)
		shared.waiting = append(shared.waiting, request.call.waiting(request.words))
	}
	s := &sender{batcher: shared}
	gone, most := 0, 0
	for s.take() {
		bytes := 0
		for _, j := range s.jobs {
			bytes += j.call.size
		}
		if bytes > 256<<10 {
			t.Errorf("a pipeline of %d calls: got %d bytes, want 256 KiB at most", len(s.jobs), bytes)
		}
		gone, most = gone+len(s.jobs), max(most, bytes)
	}
	if shared.gap != nil {
		shared.gap.Stop()
	}
	if gone != calls || most < 128<<10 {
		t.Errorf("got %d calls in pipelines of up to %d bytes, want %d in pipelines that are filled", gone, most, calls)
	}
}

// go-redis closes the client of a node that has left a cluster. Nothing of it stays here.
func TestClientsOfNodesThatLeftAreForgotten(t *testing.T) {
	options := redisconn.ClusterOptions(redisconn.Target{Hosts: []string{"127.0.0.1:1"}}, time.Second)
	c := newCluster(options)
	defer c.Close()
	store := &Engine{batchers: newBatchers()}
	for i := range 20 {
		addr := fmt.Sprint("127.0.0.1:", 10+i)
		node := options.NewClient(&redis.Options{Addr: addr})
		store.batchers.to(destination{node, 0}, store)
		store.batchers.to(destination{node, 1}, store)
		if err := node.Close(); err != nil {
			t.Fatalf("closing the client of %s: got error %v, want none", addr, err)
		}
		if known := c.known(addr); known != nil {
			t.Errorf("the node at %s has left: got its client, want none", addr)
		}
	}
	stays := options.NewClient(&redis.Options{Addr: "127.0.0.1:9"})
	defer stays.Close()
	store.batchers.to(destination{stays, 0}, store)
	if len(c.byAddr) != 1 || len(store.batchers.by) != 1 {
		t.Errorf("after 20 nodes came and left, and one stays: got %d addresses and %d batchers, want 1 of each", len(c.byAddr),
			len(store.batchers.by))
	}
	if c.known("127.0.0.1:9") != stays {
		t.Error("the node that stays is not known any more")
	}
}
