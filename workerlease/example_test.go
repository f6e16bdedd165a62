package workerlease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// orders is what the ids of the examples' pool look like.
var orders = workerlease.Shape{Layout: "41/10/12", Epoch: snowflake.DefaultEpoch}

// open opens the pools of a store. A real one has a URL such as redis://localhost:6379, and its
// unknown pools are waited for.
func open(ctx context.Context) (*redisstore.Store, *workerlease.Pools) {
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	return store, workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
}

// A process holds a worker id for as long as it lives, and stamps ids with it.
func Example() {
	ctx := context.Background()
	store, pools := open(ctx)
	defer store.Close()

	request, options := workerlease.Request{Identity: "orders-0", Shape: orders}, workerlease.HoldOptions{Wait: time.Minute}
	ids, err := pools.Stamp(ctx, "orders", request, options, snowflake.Config{})
	if err != nil {
		log.Fatal(err)
	}
	id, err := ids.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	layout, epoch, _ := ids.Layout() // the pool's
	fmt.Println("worker id", layout.Decode(id, epoch).Worker)

	// At the end: nothing is stamped any more, and the worker id is given back from the last stamp
	// on.
	if err := ids.Close(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = ids.Next(ctx)
	fmt.Println("stopped:", errors.Is(err, snowflake.ErrStopped))
	// Output:
	// worker id 0
	// stopped: true
}

// Who must stop when the worker id is no longer theirs watches the lease's context.
func ExamplePools_Hold() {
	ctx := context.Background()
	store, pools := open(ctx)
	defer store.Close()

	holder, err := pools.Hold(ctx, "orders", workerlease.Request{TTL: time.Second, Shape: orders}, workerlease.HoldOptions{Once: true})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := holder.Current()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holding", lease.WorkerID, "of", lease.Pool)

	// A caller with the lease's token ends it: for this process it is lost with the next renewal,
	// or, were Redis away, by its own clock.
	if err := pools.Release(ctx, lease.Pool, lease.WorkerID, lease.Token, lease.Now); err != nil {
		log.Fatal(err)
	}
	<-holder.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(holder.Context()), workerlease.ErrLost))
	// Output:
	// holding 0 of orders
	// lost: true
}

// A service starts although its worker id cannot be had yet.
func ExamplePools_Start() {
	ctx := context.Background()
	store, pools := open(ctx)
	defer store.Close()

	granted := make(chan struct{})
	held := pools.Start(ctx, "orders", workerlease.Request{Shape: orders}, workerlease.HoldOptions{Observe: func(e holder.Event) {
		fmt.Println(e.Kind, e.WorkerID)
		if e.Kind == holder.KindGranted {
			close(granted)
		}
	}})
	<-granted
	if err := held.Release(ctx, time.Time{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// granted 0
	// released 0
}

// Where unknown pools are waited for, a pool that is new is declared so.
func ExamplePools_Create() {
	ctx := context.Background()
	store, _ := open(ctx)
	defer store.Close()
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsWait})

	_, err := pools.Acquire(ctx, "orders", workerlease.Request{Shape: orders})
	if errors.Is(err, workerlease.ErrQuarantined) {
		fmt.Println("perhaps it was lost: wait for", redisstore.RetryAfter(err).Round(time.Second))
	}
	if err := pools.Create(ctx, "orders", orders, 0); err != nil {
		log.Fatal(err)
	}
	lease, err := pools.Acquire(ctx, "orders", workerlease.Request{Shape: orders})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("worker id", lease.WorkerID)
	// Output:
	// perhaps it was lost: wait for 31s
	// worker id 0
}

// A process that numbers itself once, such as a job, needs no holder.
func ExamplePools_Acquire() {
	ctx := context.Background()
	store, pools := open(ctx)
	defer store.Close()

	lease, err := pools.Acquire(ctx, "jobs", workerlease.Request{TTL: time.Minute, Shape: orders})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("worker id", lease.WorkerID, "for", lease.NotAfter.Sub(lease.NotBefore))
	lease, err = pools.Renew(ctx, lease, 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := pools.Release(ctx, lease.Pool, lease.WorkerID, lease.Token, time.Time{}); err != nil {
		log.Fatal(err)
	}
	_, err = pools.Renew(ctx, lease, 0)
	fmt.Println("released:", errors.Is(err, workerlease.ErrLost))
	// Output:
	// worker id 0 for 1m0s
	// released: true
}
