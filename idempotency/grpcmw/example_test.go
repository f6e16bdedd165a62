package grpcmw_test

import (
	"context"
	"log"

	"google.golang.org/grpc"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/grpcmw"
	"github.com/coatcheck/coatcheck/redisstore"
)

// All unary methods but those that only read are guarded.
func ExampleUnaryServerInterceptor() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer func() { _ = tokens.Close(ctx) }()
	reads := map[string]bool{"/shop.Payments/Get": true, "/shop.Payments/List": true}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcmw.UnaryServerInterceptor(tokens, grpcmw.Config{
		Guards: func(method string) bool { return !reads[method] },
	})))
	defer server.Stop()
	// Output:
}
