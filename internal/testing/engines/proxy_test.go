package engines_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func client(t *testing.T, p *engines.Proxy) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, PoolSize: 1, DB: 3})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func said(answer any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer)
}

func TestEngineRefusesInTheWordsOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := engines.Start(t, server.Addr(), engines.Engine{})
	c := client(t, proxy)
	plain := c.InfoMap(t.Context(), "replication").Item("Replication", "master_replid")
	for _, row := range []struct {
		name   string
		engine engines.Engine
		words  []any
		want   string // begins so
	}{
		{"a server as it is", engines.Engine{}, []any{"EVAL", "return redis.call('INFO', 'replication')", 0}, "# Replication"},
		{"an unknown command", engines.Engine{Unknown: []string{"WAIT"}}, []any{"wait", 0, 1},
			"ERR unknown command 'wait', with args beginning with: '0' '1' "},
		{"an unknown command in a script", engines.Engine{Unknown: []string{"WAIT"}}, []any{"EVAL", "return redis.call('wait', 0, 1)", 0},
			"ERR Unknown Redis command called from script"},
		{"a command that scripts may not run", engines.Engine{NotInScripts: []string{"INFO"}}, []any{"EVAL", "return redis.call('INFO')", 0},
			"ERR This Redis command is not allowed from script"},
		{"the same, caught", engines.Engine{NotInScripts: []string{"INFO"}}, []any{"EVAL", "return redis.pcall('INFO').err", 0},
			"ERR This Redis command is not allowed from script"},
		{"the same beside scripts", engines.Engine{NotInScripts: []string{"INFO"}}, []any{"INFO", "replication"}, "# Replication"},
		{"no Lua", engines.Engine{NoLua: true}, []any{"EVAL", "return 1", 0}, "ERR Could not find scripting engine 'lua'"},
		{"no Lua, by name", engines.Engine{NoLua: true}, []any{"EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0},
			"NOSCRIPT No matching script."},
		{"no SET with GET", engines.Engine{NoSetGet: true}, []any{"EVAL", "return redis.call('SET', 'k', 'v', 'PX', 100, 'GET')", 0},
			"ERR syntax error"},
		{"SET without it", engines.Engine{NoSetGet: true}, []any{"EVAL", "return redis.call('SET', 'get', 'get', 'PX', 100)", 0}, "OK"},
	} {
		proxy.Be(row.engine)
		for _, again := range []string{"", ", again"} {
			if got := said(c.Do(t.Context(), row.words...).Result()); !strings.HasPrefix(got, row.want) {
				t.Errorf("%s%s: %v: got %q, want %q", row.name, again, row.words, got, row.want)
			}
		}
	}
	for name, row := range map[string]struct{ value, want string }{"hidden": {"", ""}, "zeros": {engines.Zeros, engines.Zeros}} {
		proxy.Be(engines.Engine{Info: map[string]string{"master_replid": row.value}})
		expect.Equal(t, name+": master_replid outside of a script", c.InfoMap(t.Context(), "replication").Item("Replication", "master_replid"),
			row.want)
		inside := said(c.Do(t.Context(), "EVAL", "return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x*)') or ''",
			0).Result())
		expect.Equal(t, name+": master_replid in a script, of a server with "+plain, inside, row.want)
	}
}

// The hash of a script is that of its text, as the client knows it.
func TestEngineKnowsScriptsByTheirHashes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := engines.Start(t, server.Addr(), engines.Engine{NotInScripts: []string{"INFO"}})
	c := client(t, proxy)
	script := redis.NewScript("return {pcall(redis.call, 'INFO') and 1 or 0, redis.call('INCR', KEYS[1])}")
	hash, err := script.Load(t.Context(), c).Result()
	expect.Error(t, "SCRIPT LOAD", err, nil)
	expect.Equal(t, "its answer", hash, script.Hash())
	for want := range 3 {
		got, err := script.EvalSha(t.Context(), c, []string{"n"}).Result()
		expect.Error(t, "EVALSHA", err, nil)
		expect.Equal(t, "its answer", fmt.Sprint(got), fmt.Sprintf("[0 %d]", want+1))
	}
	server.Restart()
	proxy.Behind(server.Addr())
	if got := said(script.EvalSha(t.Context(), c, []string{"n"}).Result()); !strings.HasPrefix(got, "NOSCRIPT") {
		t.Errorf("EVALSHA on a server that was restarted: got %q, want NOSCRIPT", got)
	}
}

func TestProxyKeepsConnectionsOverAnotherServer(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t, "--requirepass", "word"), redistest.Start(t, "--requirepass", "word")
	proxy := engines.Start(t, one.Addr(), engines.Engine{})
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, PoolSize: 1, Password: "word", DB: 3})
	t.Cleanup(func() { _ = c.Close() })
	incr := func(want string) {
		t.Helper()
		expect.Equal(t, "INCR n", said(c.Incr(t.Context(), "n").Result()), want)
	}
	incr("1")
	incr("2")
	proxy.Behind(two.Addr())
	incr("1")
	two.Kill()
	incr("upstream failure")
	incr("no upstream host")
	two.Restart()
	incr("1")
	expect.Equal(t, "connections that the client made", proxy.Accepted(), 1)
}

func TestProxyPassesSubscriptions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := engines.Start(t, server.Addr(), engines.Engine{})
	listening := client(t, proxy).Subscribe(t.Context(), "news")
	defer listening.Close()
	if _, err := listening.Receive(t.Context()); err != nil {
		t.Fatalf("SUBSCRIBE: %v", err)
	}
	expect.Error(t, "PUBLISH", client(t, proxy).Publish(t.Context(), "news", "here").Err(), nil)
	message, err := listening.ReceiveMessage(t.Context())
	expect.Error(t, "the message", err, nil)
	expect.Equal(t, "what was heard", message.Payload, "here")
}
