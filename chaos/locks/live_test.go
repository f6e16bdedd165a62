package locks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// A master that is alive and was replaced goes on until it is told, with the replica that has not been told either. A lock that both have confirmed is held there, and is
// granted again by the new one: that takes a confirmation by every replica that could have been promoted. No kill does this, but a failover by hand, a
// master that hangs for a moment, and a network that parts the servers do.
func TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		ack  int
		want porcupine.CheckResult
	}{{1, porcupine.Illegal}, {2, porcupine.Ok}} {
		t.Run(fmt.Sprintf("ack %d", row.ack), func(t *testing.T) {
			t.Parallel()
			old, promoted, other := redistest.Start(t), redistest.Start(t), redistest.Start(t)
			replicate(t, old, promoted, other)
			do(t, promoted, "REPLICAOF", "NO", "ONE")
			history := &inOneProcess{t: t}
			history.grant(0, old, row.ack)
			replicate(t, promoted, old, other)
			history.grant(1, promoted, row.ack)
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

// grant has a client ask for the lock at a server, if it is granted there at all within a moment.
func (h *inOneProcess) grant(client int, server *redistest.Server, ack int) {
	h.t.Helper()
	locks, err := openFenced(h.t.Context(), server.URL(), ack)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = locks.close() })
	asked := now()
	held, err := locks.acquire(h.t.Context(), wish{name: "live", ttl: time.Minute})
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

// ended is the history, with everybody who still believes to hold looking once more.
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

// replicate makes servers replicas of another, and waits until they are in sync and confirm what it writes, which may take a second.
func replicate(t *testing.T, master *redistest.Server, replicas ...*redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	for _, replica := range replicas {
		do(t, replica, "REPLICAOF", host, port)
	}
	await(t, time.Minute, func() string {
		ctx := t.Context()
		var confirmed *redis.Cmd
		_, err := master.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Incr(ctx, "written")
			confirmed = pipe.Do(ctx, "WAIT", len(replicas), 100)
			return nil
		})
		if n, _ := confirmed.Int(); err != nil || n < len(replicas) {
			return fmt.Sprintf("%d of %d replicas confirm, %v", n, len(replicas), err)
		}
		return ""
	})
}

func do(t *testing.T, server *redistest.Server, words ...any) {
	t.Helper()
	if err := server.Client().Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
}
