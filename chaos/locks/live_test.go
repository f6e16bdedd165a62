//go:build check

package locks

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A master that is alive and was replaced goes on until it is told, with the replica that has not
// been told either. A lock that both have confirmed is held there, and is granted again by the new
// one: that takes a confirmation by every replica that could have been promoted. No kill does this,
// but a failover by hand, a master that hangs for a moment, and a network that parts the servers
// do.
func TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		ack  int
		want porcupine.CheckResult
	}{{1, porcupine.Illegal}, {2, porcupine.Ok}} {
		t.Run(fmt.Sprintf("ack %d", row.ack), func(t *testing.T) {
			t.Parallel()
			old, promoted, other := chaostest.ReplacedAlive(t)
			history := &inOneProcess{t: t}
			history.grant(0, old, row.ack, 1)
			chaostest.Replicate(t, promoted, old, other)
			history.grant(1, promoted, row.ack, 2)
			if got := explained(mutexModel, history.ended()); got != row.want {
				t.Errorf("%v, want %v: %v", got, row.want, history.operations)
			}
		})
	}
}

// inOneProcess is a history of clients that this process has.
type inOneProcess struct {
	t          *testing.T
	operations []porcupine.Operation
	held       map[int]holding
}

// grant has a client ask for the lock at a server that so many replicas follow, and whose grants so
// many have to confirm. Where they can they will, however long a busy machine takes for it; where
// they cannot it is refused soon.
func (h *inOneProcess) grant(client int, server *redistest.Server, ack, followers int) {
	h.t.Helper()
	config := redisstore.Config{URL: server.URL(), Ack: ack}
	if followers >= ack {
		config.Timeout, config.AckTimeout = time.Minute, 40*time.Second
	}
	locks, err := openFenced(h.t.Context(), config, window)
	expect.NoError(h.t, "opening the locks", err)
	h.t.Cleanup(func() { _ = locks.Close() })
	asked := now()
	held, err := locks.Acquire(h.t.Context(), wish{Name: "live", TTL: time.Hour})
	if err != nil {
		h.t.Logf("client %d is granted nothing: %v", client, err)
		return
	}
	h.t.Cleanup(func() { _ = held.Release(h.t.Context()) })
	h.operations = append(h.operations, granted(client, asked, now(), held.Fence()))
	if h.held == nil {
		h.held = map[int]holding{}
	}
	h.held[client] = held
}

// ended is the history after every client that still believes it holds a lock has looked once more.
func (h *inOneProcess) ended() []porcupine.Operation {
	history := h.operations
	for client, held := range h.held {
		at := now()
		if held.Err() == nil {
			history = append(history, ended(client, at, never))
		}
	}
	return history
}
