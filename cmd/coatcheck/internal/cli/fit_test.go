package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A Redis on which a store cannot work is named in the first line, with what to change, by services
// and by commands that go straight to it, before they write anything.
func TestUnfitRedisIsNamedAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "word")
	cluster := redistest.StartCluster(t, 3, 0)
	node := cluster.Nodes()[1]
	words := []any{"ACL", "SETUSER", "few", "reset", "on", ">word"}
	for _, right := range redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:") {
		words = append(words, right)
	}
	expect.Error(t, "ACL SETUSER", server.Client().Do(t.Context(), append(words, "-get")...).Err(), nil)
	commands := [][]string{
		{"serve", "--listen", "127.0.0.1:0"},
		{"gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--routes",
			file(t, "routes: [{match: POST /pay}]")},
		{"incr", "orders"},
		{"lock", "run", "nightly", "--", "true"},
		{"worker", "ls"},
		{"token", "issue"},
	}
	for name, row := range map[string]struct {
		url  string
		want []string
	}{
		"a node of a cluster": {node.URL(), []string{"one node of a cluster", "--redis redis+cluster://" + node.Addr()}},
		"no password":         {locked.URL(), []string{"asks for a password", "redis://USER:PASSWORD@" + locked.Addr()}},
		"a wrong password":    {"redis://:hunter2@" + locked.Addr(), []string{"does not take the user and password", "WRONGPASS"}},
		"a user without +get": {strings.Replace(server.URL(), "://", "://few:word@", 1), []string{"does not let the user run GET", "+get"}},
		"Redis 6.0":           {engines.Start(t, server.Addr(), engines.Redis60).URL(), []string{"is Redis 6.0.16", "Redis 6.2 or later"}},
		"no Lua":              {engines.Start(t, server.Addr(), engines.Engine{NoLua: true}).URL(), []string{"runs no Lua"}},
		"TIME that was renamed": {engines.Start(t, server.Addr(), engines.Engine{Unknown: []string{"TIME"}}).URL(),
			[]string{"does not know TIME"}},
		"EVAL that was renamed": {engines.Start(t, server.Addr(), engines.Engine{Unknown: []string{"EVAL"}}).URL(),
			[]string{"does not know EVAL"}},
	} {
		for _, command := range commands {
			at := slices.Index(command, "--")
			if at < 0 {
				at = len(command)
			}
			said := execute(t, nil, slices.Insert(slices.Clone(command), at, "--redis", row.url, "--store-timeout",
				"1m")...).exits(usage).conceals("word@", "hunter2")
			first, _, _ := strings.Cut(said.stderr, "\n")
			expect.Contains(t, "the first line of "+said.line+", with "+name, first, row.want...)
		}
	}
	expect.Equal(t, "keys of the server", server.Client().Keys(t.Context(), "*").Val(), []string{})
}

// On a Redis that cannot show whether it has lost anything commands that need it are refused, and
// are not told to try again; others work.
func TestCommandsOnARedisThatShowsNoIncarnation(t *testing.T) {
	t.Parallel()
	url := engines.Start(t, redistest.Start(t).Addr(), engines.Engine{Info: map[string]string{"master_replid": engines.Zeros}}).URL()
	for _, row := range []struct {
		command string
		code    int
	}{
		{"incr orders --redis URL", failed},
		{"incr orders --redis URL --template ORD-{n:4} --request-id a", failed},
		{"id segment orders --redis URL", failed},
		{"worker run orders --redis URL --wait 1h -- true", failed},
		{"worker create orders --redis URL", failed},
		{"lock run nightly --redis URL -- true", done},
		{"token issue --redis URL", done},
		{"incr orders --redis URL --restarts trust", done},
	} {
		said := execute(t, nil, strings.Fields(strings.Replace(row.command, "URL", url, 1))...).exits(row.code)
		if row.code == failed {
			expect.Contains(t, "stderr of "+said.line, said.stderr, "master_replid is 0000", "--restarts trust", "store-unsuitable")
		}
	}
}

// Commands that meet what a newer version has written say which one to install, do not wait, and
// are not told to try again.
func TestCommandsOnARedisOfANewerVersion(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, words := range [][]any{
		{"SET", "coatcheck:counters:{marker}", "@2:9.9.9 a"}, {"SET", "coatcheck:segments:{marker}", "@2:9.9.9 a"},
		{"HSET", "coatcheck:worker:{orders}", "pool", "@2:9.9.9 a"}, {"SET", "coatcheck:lock:{nightly}:fence", "@2:9.9.9 a"},
		{"SET", "coatcheck:limit:{mails}", "@2:9.9.9 a"}, {"HSET", "coatcheck:access:{keys}", "k1", "@2:9.9.9 a"},
		{"SET", "coatcheck:incarnation:{store}", "@2:9.9.9 a"},
	} {
		expect.NoError(t, "ask Redis", redis.Client().Do(t.Context(), words...).Err())
	}
	before := redis.Client().DBSize(t.Context()).Val()
	for _, command := range []string{
		"incr orders --redis URL", "counter set orders 5 --redis URL", "id segment orders --redis URL", "worker run orders --redis URL --wait 1h -- true",
		"worker ls orders --redis URL", "lock run nightly --redis URL --wait 1h -- true", "lock ls nightly --redis URL",
		"limit mails --rate 5/m --redis URL", "key ls --redis URL", "key rm k1 --redis URL", "store restored --redis URL",
	} {
		said := execute(t, nil, strings.Fields(strings.Replace(command, "URL", redis.URL(), 1))...).exits(failed)
		expect.Contains(t, "stderr of "+said.line, said.stderr, "in format 2", "install 9.9.9 or newer")
	}
	expect.Equal(t, "keys of the server", redis.Client().DBSize(t.Context()).Val(), before)
	execute(t, nil, "token", "issue", "--redis", redis.URL()).exits(done)
}
