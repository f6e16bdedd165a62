package lock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // or redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()

	held, err := locks.Acquire(ctx, "report-file", lock.Request{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)
	work := held.Context() // ends when the lock cannot be counted on any more
	fmt.Println(work.Err(), held.Validity() > 8*time.Second)

	_, err = locks.TryAcquire(ctx, "report-file", lock.Request{})
	fmt.Println(err != nil)
	// Output:
	// <nil> true
	// true
}

// A job that one of several processes runs at a time. Each process campaigns; the leader works
// until its context ends, and its fence is the number of its term.
func ExampleLocks_Campaign() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()

	// waits for its turn
	leader, err := locks.Campaign(ctx, "nightly-report", lock.Request{Owner: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	for now, err := range locks.Leaders(ctx, "nightly-report") { // what others see
		fmt.Println(now.Owner, "leads", err)
		break
	}
	work := leader.Context() // ends when it cannot be sure that it still leads
	fmt.Println(work.Err(), leader.Release(ctx))
	// Output:
	// worker-1 leads <nil>
	// <nil> <nil>
}

// A holder that was paused past its lease writes after the next one has: its fence is the smaller
// one, and the statement changes no row.
func ExampleCheckFenceSQL() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()

	// it is not renewed, as if its process were paused
	paused, err := locks.TryGrant(ctx, "ann", lock.Request{TTL: lock.MinTTL})
	if err != nil {
		log.Fatal(err)
	}
	next, err := locks.Acquire(ctx, "ann", lock.Request{}) // waits until the lease has ended
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)

	// Each writes its balance with
	//
	//	result, err := db.ExecContext(ctx, update, balance, fence, "ann", fence)
	//
	// and where result.RowsAffected is 0 it was overtaken.
	// With pgx, lib/pq or SQLite it is PlaceholderDollar.
	update := lock.CheckFenceSQL(lock.PlaceholderQuestion, "account", "id", "balance")
	fmt.Println(update)
	fmt.Println(lock.CheckFenceSQL(lock.PlaceholderDollar, "account", "id", "balance"))
	fmt.Println("the next holder has the larger fence:", next.Fence() > paused.Fence)
	// Output:
	// UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
	// UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $4
	// the next holder has the larger fence: true
}
