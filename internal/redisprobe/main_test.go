package redisprobe_test

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	storetest.AllRights = true
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // stores that are away are part of these tests
	os.Exit(m.Run())
}

// open opens a store whose calls may take longer than any test waits.
func open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	return storetest.Open(t, redisstore.Config{URL: url, Timeout: time.Minute})
}

// do runs a command on a server itself.
func do(t testing.TB, server *redistest.Server, words ...any) any {
	t.Helper()
	answer, err := server.Client().Do(t.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("command %v: %v", words, err)
	}
	return answer
}
