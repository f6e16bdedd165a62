package redisprobe_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
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

// script makes a script for a test.
func script(name, source string, reads bool) *scripts.Script {
	if reads {
		source = "\n-- Effect none\n" + source
	}
	return scripts.New(name, source)
}

// bumped adds one to a record and returns the sum.
func bumped(ctx context.Context, store *redisstore.Store, name string) (int64, error) {
	return number(ctx, store, script("bump", "return {'ok', tostring(redis.call('INCR', KEYS[1]))}", false), name)
}

// counted is what a record holds.
func counted(t testing.TB, store *redisstore.Store, name string) int64 {
	t.Helper()
	n, err := number(t.Context(), store, script("peek", "return {'ok', redis.call('GET', KEYS[1]) or '0'}", true), name)
	if err != nil {
		t.Fatalf("reading the record %s: %v", name, err)
	}
	return n
}

func number(ctx context.Context, store *redisstore.Store, script *scripts.Script, name string) (int64, error) {
	reply, err := store.Run(ctx, script, []string{store.Key("test", name)})
	if err != nil {
		return 0, err
	}
	return reply.Number(0)
}
