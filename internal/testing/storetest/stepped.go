//go:build steps

package storetest

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Stepped opens an embedded store, for a scene of package internal/testing/walk: each request to it
// is a point before it is sent, and again before its caller has the reply. So the order in which
// replies reach the process is walked, and a reply may come later than those of other requests that
// were sent after it.
func Stepped(t testing.TB) (*redisstore.Store, *redis.Client) {
	t.Helper()
	store := Open(t, redisstore.Config{URL: "embedded:", Timeout: patience})
	var client *redis.Client
	_ = onstore.EachMaster(t.Context(), store, "stepped", func(_ context.Context, master *redis.Client) error {
		client = AtRequests(master)
		return nil
	})
	return store, client
}

// AtRequests has a client be at a point before each request and before each reply, as [Stepped].
func AtRequests(client *redis.Client) *redis.Client {
	client.AddHook(stepped{})
	return client
}

type stepped struct{}

func (stepped) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (stepped) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer between(cmd)()
		return next(ctx, cmd)
	}
}

func (stepped) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer between(cmds[0])()
		return next(ctx, cmds)
	}
}

// between is at a point before a request, and returns what is to be done after the reply. What a
// connection begins with is no point.
func between(cmd redis.Cmder) func() {
	switch cmd.Name() {
	case "hello", "client", "ping":
		return func() {}
	}
	step.At("redis: " + cmd.Name() + " is sent")
	return func() { step.At("redis: " + cmd.Name() + " was answered") }
}
