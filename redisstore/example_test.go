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
