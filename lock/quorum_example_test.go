package lock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A majority of servers that know nothing of each other grants a lock. Here they are in this
// process; usually each URL is that of a server of its own.
func ExampleQuorumLocks() {
	ctx := context.Background()
	quorum, err := redisstore.OpenQuorum(ctx, []string{"embedded:", "embedded:", "embedded:"}, redisstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer quorum.Close()
	// By default servers that are new, or may have lost something, grant nothing for half a minute.
	// This is for those that lose nothing.
	locks := lock.NewQuorum(quorum, lock.Config{AfterLoss: lock.GrantAfterLoss})
	defer locks.Close()

	held, err := locks.Acquire(ctx, "nightly-report", lock.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Release(ctx)
	fmt.Println("held, with a fence:", held.Fence() > 0, "and for a while:", held.Validity() > 0)

	_, err = locks.TryAcquire(ctx, "nightly-report", lock.Request{})
	fmt.Println("refused to others:", errors.Is(err, lock.ErrHeld))
	// Output:
	// held, with a fence: true and for a while: true
	// refused to others: true
}
