package redisstore_test

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A service that has a go-redis client already gives it to From, whatever its settings are.
func ExampleFrom() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Dialer: dialer()}) // Addr: "localhost:6379"
	defer client.Close()
	store, err := redisstore.From(client, redisstore.Config{Prefix: "shop:"})
	if err != nil {
		panic(err)
	}
	defer store.Close() // the client stays open
	orders := counter.New(store, counter.Config{})
	defer orders.Close()
	number, err := orders.Incr(ctx, "orders")
	fmt.Println(number, err)
	// Output:
	// 1 <nil>
}

// dialer leads to a store in memory, in place of a Redis.
func dialer() func(context.Context, string, string) (net.Conn, error) {
	server, err := embedded.Open(embedded.Config{})
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return server.Dial(ctx) }
}

// New shares the connections of the client, and says what its settings lack.
func ExampleNew() {
	ctx := context.Background()
	options := &redis.Options{Dialer: dialer(), ContextTimeoutEnabled: true}

	careless := redis.NewClient(options)
	defer careless.Close()
	_, err := redisstore.New(careless, redisstore.Config{Prefix: "shop:"})
	fmt.Println(err)

	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer client.Close() // the store leaves it open
	store, err := redisstore.New(client, redisstore.Config{Prefix: "shop:"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	orders := counter.New(store, counter.Config{})
	defer orders.Close()
	number, err := orders.Incr(ctx, "orders")
	fmt.Println(number, err)
	// Output:
	// redis client: it sends a command up to 3 times again when the reply is lost, so that an increment is done more than once; set redis.Options.MaxRetries to -1, or call redisstore.From in place of New
	// 1 <nil>
}
