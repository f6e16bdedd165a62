package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	expect.NoError(t, "open", err)
	t.Cleanup(func() { s.Close() })
	return s
}

func client(t testing.TB, s *Store) *redis.Client {
	t.Helper()
	c := dialer(s)
	t.Cleanup(func() { c.Close() })
	return c
}

func dialer(s *Store) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            "127.0.0.1:1",
		Dialer:          func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
		Protocol:        2,
		DisableIdentity: true,
		// go-redis waits for 3 s, and a busy machine may need more
		ReadTimeout:              2 * time.Minute,
		WriteTimeout:             2 * time.Minute,
		PoolTimeout:              2 * time.Minute,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// do runs a command that must succeed, and returns its reply as text.
func do(t testing.TB, c *redis.Client, words ...any) string {
	t.Helper()
	reply, err := c.Do(t.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: got error %v", words, err)
	}
	return fmt.Sprint(reply)
}

func want(t testing.TB, c *redis.Client, reply string, words ...any) {
	t.Helper()
	if got := do(t, c, words...); got != reply {
		t.Fatalf("%v: got %s, want %s", words, got, reply)
	}
}

func refused(t testing.TB, c *redis.Client, begin string, words ...any) {
	t.Helper()
	reply, err := c.Do(t.Context(), words...).Result()
	if err == nil || !strings.HasPrefix(err.Error(), begin) {
		t.Fatalf("%v: got %v, %v, want an error that begins with %q", words, reply, err, begin)
	}
}
