package embedded_test

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/embedded"
)

func Example() {
	store, err := embedded.Open(embedded.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // never dialed
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return store.Dial(ctx) },
	})
	defer client.Close()
	fmt.Println(client.Incr(context.Background(), "orders").Result())
	// Output: 1 <nil>
}
