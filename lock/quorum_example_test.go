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
	// By default servers that are new, or may have lost something, grant nothing for half a minute.
	// This is for those that lose nothing.
	config := lock.Config{AfterLoss: lock.GrantAfterLoss}
	locks, err := lock.OpenQuorum(ctx, []string{"embedded:", "embedded:", "embedded:"}, redisstore.Config{}, config)
	if err != nil {
		fmt.Println(err)
		return
	}
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
