package redisprobe_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// unfit is what a store cannot work with, or "".
func unfit(t *testing.T, config redisstore.Config) string {
	t.Helper()
	if err := redisprobe.Unfit(t.Context(), config); err != nil {
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "word") && !strings.Contains(err.Error(), "password") {
			t.Errorf("Unfit: got %q, want one line without the password", err)
		}
		return err.Error()
	}
	return ""
}

func TestUnfitSaysWhatToChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "word")
	cluster := redistest.StartCluster(t, 3, 0)
	set := redistest.StartSentinel(t, 1)
	node, replica, sentinel := cluster.Nodes()[1], set.Replicas()[0], set.Sentinels()[0]
	like := func(engine engines.Engine) string { return engines.Start(t, server.Addr(), engine).URL() }
	renamed := func(name string) string { return redistest.Start(t, "--rename-command", name, "").URL() }
	without := func(command string) string {
		rights := slices.DeleteFunc(redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:"),
			func(right string) bool { return right == "+"+command })
		do(t, server, append([]any{"ACL", "SETUSER", "no-" + command, "reset", "on", ">word"}, words(rights)...)...)
		return strings.Replace(server.URL(), "://", "://no-"+command+":word@", 1)
	}
	for _, row := range []struct {
		name   string
		config redisstore.Config
		want   []string // parts of the answer; none = it is fit
	}{
		{"a server", redisstore.Config{URL: server.URL()}, nil},
		{"the embedded store", redisstore.Config{URL: "embedded:"}, nil},
		{"a cluster", redisstore.Config{URL: cluster.URL()}, nil},
		{"a Sentinel set", redisstore.Config{URL: set.URL()}, nil},
		{"a node of a cluster", redisstore.Config{URL: node.URL()},
			[]string{node.URL() + " is one node of a cluster", "--redis redis+cluster://" + node.Addr()}},
		{"a replica", redisstore.Config{URL: replica.URL()}, []string{replica.URL() + " is a replica", "--redis " + set.Master().URL()}},
		{"a sentinel", redisstore.Config{URL: sentinel.URL()}, []string{"is a sentinel", "--redis redis+sentinel://" + sentinel.Addr()}},
		{"a server in place of a sentinel", redisstore.Config{URL: "redis+sentinel://" + server.Addr() + "/main"},
			[]string{"no sentinel", "--redis " + server.URL()}},
		{"a server in place of a cluster", redisstore.Config{URL: "redis+cluster://" + server.Addr()},
			[]string{"no node of a cluster", "--redis " + server.URL()}},
		{"no password", redisstore.Config{URL: locked.URL()}, []string{"asks for a password", "redis://USER:PASSWORD@" + locked.Addr()}},
		{"a wrong password", redisstore.Config{URL: "redis://:wrong@" + locked.Addr()},
			[]string{"does not take the user and password (WRONGPASS"}},
		{"a password of a server without one, which takes any", redisstore.Config{URL: "redis://:more@" + server.Addr()}, nil},
		{"no Lua", redisstore.Config{URL: like(engines.Engine{NoLua: true})},
			[]string{"runs no Lua (ERR Could not find scripting engine 'lua')"}},
		{"Redis 6.0", redisstore.Config{URL: like(engines.Redis60)}, []string{"is Redis 6.0.16", "Redis 6.2 or later"}},
		{"KeyDB", redisstore.Config{URL: like(engines.KeyDB)}, nil},
		{"KeyDB, with an acknowledgement", redisstore.Config{URL: like(engines.KeyDB), Ack: 1}, []string{"is KeyDB", "--ack 0"}},
		{"an active replica", redisstore.Config{URL: like(engines.Engine{Info: map[string]string{"role": "active-replica"}})},
			[]string{"is an active replica", "active-replica no"}},
		{"EVAL renamed", redisstore.Config{URL: renamed("EVAL")}, []string{"does not know EVAL", "rename-command"}},
		{"TIME renamed", redisstore.Config{URL: renamed("TIME")}, []string{"does not know TIME"}},
		{"INFO renamed", redisstore.Config{URL: like(engines.Engine{Unknown: []string{"INFO"}})}, nil},
		{"no WAIT", redisstore.Config{URL: renamed("WAIT")}, nil},
		{"no WAIT, with an acknowledgement", redisstore.Config{URL: renamed("WAIT"), Ack: 1}, []string{"does not know WAIT"}},
		{"no right to WAIT", redisstore.Config{URL: without("wait")}, nil},
		{"no right to INFO", redisstore.Config{URL: without("info")}, nil},
		{"no right to INFO, where restarts are trusted", redisstore.Config{URL: without("info"), Restarts: redisstore.RestartsTrust}, nil},
		{"no right to INFO, which has to list replicas", redisstore.Config{URL: without("info"), Ack: redisstore.AckAll},
			[]string{"does not let the user run INFO", "+info"}},
		{"INFO renamed, which has to list replicas", redisstore.Config{URL: like(engines.Engine{Unknown: []string{"INFO"}}), Ack: redisstore.AckAll}, []string{"does not know INFO"}},
		{"no right to PUBLISH", redisstore.Config{URL: without("publish")}, nil},
		{"no right to SUBSCRIBE", redisstore.Config{URL: without("subscribe")}, nil},
		{"no right to GET", redisstore.Config{URL: without("get")},
			[]string{"does not let the user run GET under the prefix", "ACL SETUSER ", "* +get, at each server"}},
		{"no right to another prefix's keys and channels", redisstore.Config{URL: without("channels"), Prefix: "shop:"},
			[]string{"does not let the user run", "~shop:* &shop:* +", "at each server"}},
		{"INFO refused in scripts", redisstore.Config{URL: like(engines.Engine{NotInScripts: []string{"INFO"}})}, nil},
		{"no CONFIG", redisstore.Config{URL: like(engines.Engine{Unknown: []string{"CONFIG"}})}, nil},
	} {
		if row.config.Timeout == 0 {
			row.config.Timeout = time.Minute
		}
		said := unfit(t, row.config)
		if len(row.want) == 0 {
			expect.Equal(t, row.name, said, "")
		} else {
			expect.Contains(t, row.name, said, row.want...)
		}
	}
}

// The user of a sentinel is another one than that of the servers.
func TestUnfitNamesTheSentinelAndItsUser(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	for _, sentinel := range set.Sentinels() {
		do(t, sentinel, append([]any{"ACL", "SETUSER", "watcher", "reset", "on", ">word"},
			words(slices.DeleteFunc(redisprobe.SentinelRights(), func(right string) bool { return right == "+subscribe" }))...)...)
	}
	said := unfit(t, redisstore.Config{URL: set.URL() + "?sentinel_username=watcher&sentinel_password=word", Timeout: time.Minute})
	expect.Contains(t, "a user at sentinels that may not SUBSCRIBE", said,
		"sentinel "+set.Sentinels()[0].Addr()+" does not let the user run SUBSCRIBE", "ACL SETUSER watcher &+switch-master &+replica-reconf-done +subscribe, at each sentinel", "sentinel_username")
	for _, sentinel := range set.Sentinels() {
		do(t, sentinel, "ACL", "SETUSER", "default", "off")
	}
	expect.Contains(t, "no user at sentinels", unfit(t, redisstore.Config{URL: set.URL(), Timeout: time.Minute}), "asks for a password",
		"sentinel_password=PASSWORD")
}

// What is away now may be fit later.
func TestUnfitDoesNotJudgeWhatIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	expect.Equal(t, "keys before", do(t, server, "KEYS", "*"), any([]any{}))
	expect.Equal(t, "a server", unfit(t, redisstore.Config{URL: server.URL()}), "")
	expect.Equal(t, "keys after", do(t, server, "KEYS", "*"), any([]any{}))
	server.Kill()
	for _, url := range []string{server.URL(), "redis+sentinel://" + server.Addr() + "/m", "redis+cluster://" + server.Addr()} {
		expect.Equal(t, url+", which is down", unfit(t, redisstore.Config{URL: url}), "")
	}
}

// Clients of a cluster go by what its nodes announce.
func TestUnfitFindsANodeThatAnnouncesWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	seed := cluster.Nodes()[1]
	url := "redis+cluster://" + seed.Addr()
	expect.Equal(t, "a cluster", unfit(t, redisstore.Config{URL: url}), "")
	do(t, seed, "CONFIG", "SET", "cluster-announce-port", 1)
	expect.Eventually(t, "the node announces the port", func() bool {
		said := unfit(t, redisstore.Config{URL: url})
		return strings.Contains(said, seed.URL()+" is a node of a cluster that announces itself as 127.0.0.1:1, which cannot be reached") &&
			strings.Contains(said, "cluster-announce-port")
	})
}

// A port with TLS where the URL has none, and one without where it has, says nothing of why it does
// not understand: it waits, or ends the connection.
func TestUnfitFindsThePortOfTheOtherScheme(t *testing.T) {
	t.Parallel()
	server, secure, cert := redistest.StartTLS(t)
	locked := redistest.Start(t, "--requirepass", "word").Addr()
	node := redistest.StartCluster(t, 3, 0).Nodes()[1].Addr()
	sentinel := redistest.StartSentinel(t, 1).Sentinels()[0].Addr()
	for url, want := range map[string][]string{
		"redis://" + secure:                            {"redis://" + secure + " speaks TLS at this port: --redis rediss://" + secure},
		"redis+cluster://" + secure:                    {"redis://" + secure + " speaks TLS at this port: ?tls=true in --redis"},
		"redis+sentinel://" + secure + "/m":            {"sentinel " + secure + " speaks TLS at this port: ?tls=true in --redis"},
		"rediss://" + server.Addr():                    {"rediss://" + server.Addr() + " speaks no TLS at this port: --redis redis://" + server.Addr()},
		"rediss://:word@" + locked:                     {"rediss://" + locked + " speaks no TLS at this port: --redis redis://" + locked},
		"redis+cluster://" + node + "?tls=true":        {"rediss://" + node + " speaks no TLS at this port: no tls=true in --redis"},
		"redis+sentinel://" + sentinel + "/m?tls=true": {"sentinel " + sentinel + " speaks no TLS at this port: no tls=true in --redis"},
	} {
		expect.Contains(t, url, unfit(t, redisstore.Config{URL: url, Timeout: 2 * time.Second}), want...)
	}
	expect.Equal(t, "rediss:// at the port with TLS", unfit(t, redisstore.Config{URL: "rediss://" + secure + "?tls_ca=" + cert}), "")
}

// What an engine hides or refuses is a fact of its own: it is not said that nothing works.
func TestInspectFindsWhatAnEngineHides(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, row := range map[string]struct {
		engine engines.Engine
		want   string // why no incarnation is seen
	}{
		"a server as it is": {},
		"no master_replid":  {engines.Engine{Info: map[string]string{"master_replid": ""}}, "INFO has no master_replid"},
		"zeros":             {engines.Engine{Info: map[string]string{"master_replid": engines.Zeros}}, "master_replid is zeros"},
		"INFO in scripts": {engines.Engine{NotInScripts: []string{"INFO"}},
			"INFO in a script: ERR This Redis command is not allowed from script"},
	} {
		s := inspect(t, redisstore.Config{URL: engines.Start(t, server.Addr(), row.engine).URL()}, redisprobe.Options{}).Servers[0]
		expect.Equal(t, name+": how a script fails", s.ScriptFails, "")
		expect.Contains(t, name+": why no incarnation is seen", s.NoIncarnation, row.want)
		expect.Equal(t, name+": an incarnation is seen", s.Incarnation != "", row.want == "")
	}
	proxy := engines.Start(t, server.Addr(), engines.Engine{Unknown: []string{"WAIT"}})
	s := inspect(t, redisstore.Config{URL: proxy.URL(), Ack: 1}, redisprobe.Options{}).Servers[0]
	expect.Equal(t, "no WAIT: what the write was refused with", s.Reach.Err, "")
	expect.Equal(t, "no WAIT: what WAIT was refused with", s.Reach.WaitErr, "ERR unknown command 'wait'")
}
