package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// do runs a command on a server itself.
func do(t testing.TB, server *redistest.Server, words ...any) any {
	t.Helper()
	answer, err := server.Client().Do(t.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("command %v: %v", words, err)
	}
	return answer
}

// A server that takes no writes now says so, and that is a refusal: nothing happened. When it takes
// writes again, so does the store.
func TestServerThatTakesNoWritesRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		says  string
		reads bool    // it still answers scripts that only read
		ill   [][]any // commands; nil = its disk fails
		well  []any
	}{
		{"replica", "READONLY", true, [][]any{{"REPLICAOF", "127.0.0.1", "1"}}, []any{"REPLICAOF", "NO", "ONE"}},
		{"too few replicas", "NOREPLICAS", true, [][]any{{"CONFIG", "SET", "min-replicas-to-write", 1}}, []any{"CONFIG", "SET", "min-replicas-to-write", 0}},
		{"out of memory", "OOM", true, [][]any{{"CONFIG", "SET", "maxmemory", 1}}, []any{"CONFIG", "SET", "maxmemory", 0}},
		{"a disk that fails", "MISCONF", true, nil, []any{"CONFIG", "SET", "stop-writes-on-bgsave-error", "no"}},
		{"a user that may run nothing", "NOPERM", false, [][]any{{"ACL", "SETUSER", "default", "-evalsha", "-eval"}}, []any{"ACL", "SETUSER", "default", "+@all"}},
		{"a user that may not touch the keys", "NOPERM", false, [][]any{{"ACL", "SETUSER", "default", "resetkeys", "~other:*"}}, []any{"ACL", "SETUSER", "default", "allkeys"}},
		{"a user whose scripts may not write", "run th", true, [][]any{{"ACL", "SETUSER", "default", "-incr"}}, []any{"ACL", "SETUSER", "default", "+@all"}},
		{"a password set meanwhile", "NOAUTH", false, [][]any{
			{"CONFIG", "SET", "requirepass", "x"}, {"AUTH", "x"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"},
		}, []any{"CONFIG", "SET", "requirepass", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := redistest.Start(t, "--enable-protected-configs", "yes")
			store := open(t, server.URL(), nil)
			warm(t, store, 1)
			for _, command := range row.ill {
				do(t, server, command...)
			}
			if row.ill == nil {
				failDisk(t, server)
			}
			for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
				_, err := bumped(t.Context(), view, "x")
				refused(t, err)
				expect.Contains(t, "the error", err.Error(), row.says)
				_, err = number(t.Context(), view, peek, "x")
				expect.Equal(t, "whether a read succeeds", err == nil, row.reads)
			}
			do(t, server, row.well...)
			mustBump(t, store, "x", 1)
		})
	}
}

// failDisk has a server fail to write a snapshot.
func failDisk(t *testing.T, server *redistest.Server) {
	t.Helper()
	gone := t.TempDir() + "/gone"
	expect.NoError(t, "os.Mkdir", os.Mkdir(gone, 0o755))
	do(t, server, "CONFIG", "SET", "dir", gone)
	expect.NoError(t, "os.Remove", os.Remove(gone))
	do(t, server, "CONFIG", "SET", "save", "3600 1")
	do(t, server, "BGSAVE")
	expect.Eventually(t, "the snapshot fails", func() bool {
		return strings.Contains(do(t, server, "INFO", "persistence").(string), "rdb_last_bgsave_status:err")
	})
}

// A server that was told not to know a command has run nothing.
func TestServerWithoutACommandRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ command, says string }{
		{"EVAL", "unknown command 'eval'"},
		{"EVALSHA", "unknown command 'evalsha'"},
		{"INCR", "command called from script"},
	} {
		t.Run(row.command, func(t *testing.T) {
			server := redistest.Start(t, "--rename-command", row.command, "")
			store := open(t, server.URL(), nil)
			for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
				_, err := bumped(t.Context(), view, "x")
				refused(t, err)
				expect.Contains(t, "the error", err.Error(), row.says)
				if strings.Contains(err.Error(), "args") || strings.Contains(err.Error(), "coatcheck:test") {
					t.Errorf("got %v, want an error without keys and arguments", err)
				}
			}
		})
	}
}

func TestServerThatLoadsItsDataRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--loading-process-events-interval-bytes", "1024")
	store := open(t, server.URL(), nil)
	warm(t, store, 1)
	mustBump(t, store, "x", 1)
	do(t, server, "DEBUG", "POPULATE", 3000)
	do(t, server, "CONFIG", "SET", "key-load-delay", 500) // microseconds a key
	loaded := make(chan error)
	go func() { loaded <- server.Client().Do(t.Context(), "DEBUG", "RELOAD").Err() }()
	loading := 0
	for done := false; !done; {
		_, err := bumped(t.Context(), store, "y")
		if err != nil {
			refused(t, err)
			if strings.Contains(err.Error(), "LOADING") {
				loading++
			}
		}
		select {
		case err := <-loaded:
			expect.NoError(t, "DEBUG RELOAD", err)
			done = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	if loading == 0 {
		t.Error("no call came while the server was loading")
	}
	mustBump(t, store, "x", 2)
}

func TestServerThatIsBusyWithAScriptRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	warm(t, store, 1)
	do(t, server, "CONFIG", "SET", "lua-time-limit", 10)
	ended := make(chan error)
	go func() { ended <- server.Client().Eval(t.Context(), "while true do end", nil).Err() }()
	expect.Eventually(t, "the server is busy", func() bool {
		_, err := bumped(t.Context(), store, "y")
		if err != nil {
			refused(t, err)
		}
		return err != nil && strings.Contains(err.Error(), "BUSY")
	})
	expect.Error(t, "SCRIPT KILL", server.Client().ScriptKill(t.Context()).Err(), nil)
	if err := <-ended; err == nil {
		t.Error("the endless script ended by itself")
	}
	mustBump(t, store, "x", 1)
}

func TestWrongPasswordIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "the-right-one")
	for name, row := range map[string]struct{ login, says string }{
		"none":         {"", "NOAUTH"},
		"wrong":        {":hunter2-hunter2@", "WRONGPASS"},
		"unknown user": {"bob:hunter2-hunter2@", "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, "redis://"+row.login+server.Addr(), nil)
			_, err := bumped(t.Context(), store, "x")
			refused(t, err)
			if !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want an error that says %s", err, row.says)
			}
		})
	}
	mustBump(t, open(t, "redis://:the-right-one@"+server.Addr(), nil), "x", 1)
}

func TestServerThatHasTooManyClientsRunsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	do(t, server, "CONFIG", "SET", "maxclients", 1) // the test's own
	_, err := bumped(t.Context(), store, "x")
	// go-redis does not take the refusal for one, and sends the command into a connection that is
	// closing
	inClass(t, err)
	do(t, server, "CONFIG", "SET", "maxclients", 100)
	mustBump(t, store, "x", 1)
}

func TestFullEmbeddedStoreRefuses(t *testing.T) {
	t.Parallel()
	store := open(t, "embedded:", func(c *redisstore.Config) { c.MaxBytes = 5000 })
	var err error
	kept := int64(0)
	for ; err == nil && kept < 100; kept++ {
		_, err = bumped(t.Context(), store, fmt.Sprint("x", kept))
	}
	kept-- // the last was refused
	refused(t, err)
	mustBump(t, store, "x0", 2)
	err = onstore.EachMaster(t.Context(), store, "test", func(ctx context.Context, own *redis.Client) error {
		expect.Equal(t, "DBSIZE of a full store", own.DBSize(ctx).Val(), kept)
		return nil
	})
	expect.NoError(t, "EachMaster", err)
}

func TestSocketOfAServer(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/redis.sock"
	redistest.Start(t, "--unixsocket", path, "--databases", "4")
	store := open(t, "unix://"+path, nil)
	mustBump(t, store, "x", 1)
	if store.Address() != "unix://"+path || store.Mode() != redisstore.ModeStandalone {
		t.Errorf("it is %s, %s", store.Mode(), store.Address())
	}
	mustBump(t, open(t, "unix://"+path+"?db=3", nil), "x", 1) // another database
}

func TestDatabaseThatTheServerDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--databases", "2")
	mustBump(t, open(t, server.URL()+"/1", nil), "x", 1)
	_, err := bumped(t.Context(), open(t, server.URL()+"/2", nil), "x")
	refused(t, err)
}

func TestHostThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://no-such-host.invalid", "redis+sentinel://no-such-host.invalid/main", "redis+cluster://no-such-host.invalid"} {
		t.Run(url, func(t *testing.T) {
			soon(t, func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				_, err := bumped(ctx, open(t, url, nil), "x")
				var lookup *net.DNSError
				if refused(t, err); !errors.As(err, &lookup) {
					t.Errorf("%v is no failed look-up", err)
				}
			})
		})
	}
}
