package lock

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// aMajorityOfTwo holds a lock at the first two of three servers. The third has never had a request
// for it.
func aMajorityOfTwo(t *testing.T, field *field, config Config, request Request) (locks, others *QuorumLocks, held *Lock) {
	t.Helper()
	locks, others = field.far(t, config), field.near(t, config)
	field.ready(t, others)
	field.links[2].set(redistest.CutBefore)
	held = mustQuorum(t, locks, "loss", request)
	return locks, others, held
}

// A server that has the lock is restarted empty. With the third it would make a majority for
// another: by default it grants nothing until the lock cannot be held any more.
func TestServerThatRestartsEmptyGrantsNothingUntilOldLeasesHaveEnded(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	locks, others, held := aMajorityOfTwo(t, field, careful, Request{})
	for i := range 2 { // no renewal comes through any more
		field.links[i].set(redistest.CutBefore)
	}
	restarted := time.Now()
	field.servers[1].RestartEmpty()
	_, err := others.TryAcquire(t.Context(), "loss", Request{})
	wantOnly(t, err, ErrHeld) // by the first server; the second is in doubt
	other, err := others.TryAcquire(t.Context(), "other", Request{})
	if err != nil {
		t.Fatal(err) // a majority is not
	}
	next, err := others.Acquire(t.Context(), "loss", Request{})
	if err != nil {
		t.Fatal(err)
	}
	if held.Err() == nil || held.Validity() > 0 {
		t.Error("two hold at once")
	}
	rising(t, held.Fence(), next.Fence())
	// The first server's lease may have ended long before: what counts is that the second one
	// waited.
	second := has(t, others.each[1], "loss", next.Token())
	if waited := time.Since(restarted); second && waited < careful.LongestTTL {
		t.Errorf("granted by it after %v", waited)
	}
	release(t, next)
	release(t, other)
	for i := range 3 {
		field.links[i].set(redistest.Pass)
	}
	_ = held.Release(t.Context()) // it was lost
	nowhere(t, locks, "loss")
}

// All servers are restarted empty, one right after the other, while a lock is held: it is not
// granted again before its holder's context has ended.
func TestNoSecondHolderWhenAllServersRestartEmpty(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	_, others, held := aMajorityOfTwo(t, field, careful, Request{})
	for i := range 2 {
		field.links[i].set(redistest.Swallow)
	}
	for _, server := range field.servers {
		server.RestartEmpty()
	}
	_, err := others.TryAcquire(t.Context(), "loss", Request{})
	wantOnly(t, err, ErrInDoubt)
	next, err := others.Acquire(t.Context(), "loss", Request{})
	if err != nil {
		t.Fatal(err)
	}
	if held.Err() == nil || held.Validity() > 0 {
		t.Error("two hold at once")
	}
	rising(t, held.Fence(), next.Fence())
	release(t, next)
	_ = held.Release(t.Context()) // it was lost
}

// With GrantAfterLoss the same is not safe: this is the fault that the default prevents.
func TestQuorumThatGrantsAfterALossLetsTwoHold(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	_, others, held := aMajorityOfTwo(t, field, grantAtOnce, Request{TTL: time.Minute})
	field.servers[1].RestartEmpty()
	next := mustQuorum(t, others, "loss", Request{})
	if held.Err() != nil {
		t.Errorf("%v: nothing was found", held.Err())
	}
	rising(t, held.Fence(), next.Fence()) // the fence still distinguishes them
	release(t, next)
	_ = held.Release(t.Context())
}

// Servers are replaced by empty ones, one after the other, each when the previous one has got what
// is held. A holder keeps its lock all the time.
func TestLockOutlivesServersThatAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	field := startField(t, 3)
	config := careful
	config.LongestTTL = 4 * time.Second // as long as a server takes until it grants again
	locks := field.near(t, config)
	field.ready(t, locks)
	held := mustQuorum(t, locks, "replaced", Request{})
	for _, server := range field.servers {
		everywhere(t, locks, held)
		server.RestartEmpty()
	}
	everywhere(t, locks, held)
	if held.Err() != nil {
		t.Fatal(held.Err())
	}
	fence := held.Fence()
	release(t, held)
	next, err := locks.Acquire(t.Context(), "replaced", Request{})
	if err != nil {
		t.Fatal(err)
	}
	rising(t, fence, next.Fence())
	release(t, next)
}
