package lock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	_ "modernc.org/sqlite"

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

	held, err := locks.Acquire(ctx, "nightly-report", lock.Request{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)
	work := held.Context() // ends when the lock cannot be counted on any more
	fmt.Println(work.Err(), held.Validity() > 8*time.Second)

	_, err = locks.TryAcquire(ctx, "nightly-report", lock.Request{})
	fmt.Println(err != nil)
	// Output:
	// <nil> true
	// true
}

// A holder that was paused past its lease writes after the next one has: the row's fence refuses
// it.
func ExampleCheckFenceSQL() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()
	db, err := sql.Open("sqlite", "file:account?mode=memory&cache=shared")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0); INSERT INTO account VALUES ('ann', 100, 0)"); err != nil {
		log.Fatal(err)
	}
	update := lock.CheckFenceSQL("account", "id", "balance")
	fmt.Println(update)
	write := func(who string, balance int, fence int64) {
		result, err := db.ExecContext(ctx, update, balance, fence, "ann", fence)
		if err != nil {
			log.Fatal(err)
		}
		if n, err := result.RowsAffected(); err == nil && n == 0 {
			fmt.Println(who, "was overtaken: nothing is written")
			return
		}
		fmt.Println(who, "writes", balance)
	}

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
	write("the next holder", 70, next.Fence())
	write("the paused holder", 130, paused.Fence)
	// Output:
	// UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
	// the next holder writes 70
	// the paused holder was overtaken: nothing is written
}
