package chaostest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Do has a server do something that must succeed.
func Do(t testing.TB, server *redistest.Server, words ...any) {
	t.Helper()
	if err := server.Client().Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%v at %s: got error %v, want none", words, server.Addr(), err)
	}
}

// Replicate makes servers replicas of another, and returns when each follows what that writes.
//
// The first write that all confirm may be one that came to them with the snapshot: a replica that
// has loaded it confirms what is in it, but may have to report once more, which it does every
// second, until it is sent what follows. Only a confirmation of a write that was made after
// that shows that it follows.
func Replicate(t testing.TB, master *redistest.Server, replicas ...*redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	for _, replica := range replicas {
		Do(t, replica, "REPLICAOF", host, port)
	}
	for range 2 {
		Await(t, time.Minute, func() string { return Confirm(t.Context(), master, len(replicas)) })
	}
}

// ReplacedAlive starts a master with two replicas of which one was promoted while it serves: it
// takes itself for the master still, and the other replica follows it.
func ReplacedAlive(t testing.TB) (old, promoted, other *redistest.Server) {
	t.Helper()
	old, promoted, other = redistest.Start(t), redistest.Start(t), redistest.Start(t)
	Replicate(t, old, promoted, other)
	Do(t, promoted, "REPLICAOF", "NO", "ONE")
	return old, promoted, other
}

// Confirm writes at a master, and complains unless that many replicas confirm it within a moment.
func Confirm(ctx context.Context, master *redistest.Server, replicas int) (complaint string) {
	return ConfirmAt(ctx, master, "chaostest", replicas)
}

// ConfirmAt is the same, with a key in the slot of a tag.
func ConfirmAt(ctx context.Context, master *redistest.Server, tag string, replicas int) (complaint string) {
	pipe := master.Client().Pipeline()
	pipe.Set(ctx, "{"+tag+"}:confirm", "", time.Minute)
	wait := pipe.Do(ctx, "WAIT", replicas, 200)
	if _, err := pipe.Exec(ctx); err != nil {
		return err.Error()
	}
	if n, err := wait.Int(); n != replicas || err != nil {
		return fmt.Sprintf("%d of %d replicas of %s confirm a write, %v", n, replicas, master.Addr(), err)
	}
	return ""
}

// KillMaster kills the master. mend returns when a replica has taken its place, and it has come
// back, empty, as a replica of that one.
func KillMaster(set *redistest.SentinelSet) (mend func()) {
	master := set.Master()
	master.Kill()
	return func() {
		set.WaitForMaster(master)
		master.Restart()
	}
}

// ReplaceMaster has a replica take the place of a master that works, as an operator would.
func ReplaceMaster(ctx context.Context, t *testing.T, set *redistest.SentinelSet) {
	t.Helper()
	master, asked := set.Master(), time.Time{}
	Await(t, 2*time.Minute, func() string {
		switch {
		case set.Master() != master:
			return ""
		case time.Since(asked) > 15*time.Second: // a sentinel that finds no replica fit gives it up
			AskForFailover(ctx, t, set)
			asked = time.Now()
		}
		return master.Addr() + " is still the master"
	})
	set.WaitForMaster(master)
}

// AskForFailover has a sentinel begin to replace a master that works.
func AskForFailover(ctx context.Context, t *testing.T, set *redistest.SentinelSet) {
	t.Helper()
	// a sentinel refuses while the failover before is not over yet
	Await(t, time.Minute, func() string {
		if err := set.Sentinels()[0].Client().Do(ctx, "SENTINEL", "FAILOVER", "coatcheck").Err(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// PauseMaster freezes the master until, in mend, a replica has taken its place. Then it goes on,
// takes itself for the master until it is told, and does what it has been sent meanwhile.
func PauseMaster(set *redistest.SentinelSet) (mend func()) {
	master := set.Master()
	master.Pause()
	return func() {
		set.WaitForMaster(master)
		master.Resume()
	}
}
