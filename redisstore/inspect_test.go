package redisstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// inspect looks at a Redis, with few samples.
func inspect(t *testing.T, config redisstore.Config, options redisstore.InspectOptions) redisstore.Inspection {
	t.Helper()
	options.Samples = 5
	options.Patience = patience
	facts, err := redisstore.Inspect(t.Context(), config, options)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

func TestInspectTellsTheFactsOfAServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--requirepass", "secret-word", "--notify-keyspace-events", "KEA")
	url := strings.Replace(srv.URL(), "redis://", "redis://:secret-word@", 1)
	var told []string
	facts := inspect(t, redisstore.Config{URL: url + "/3"}, redisstore.InspectOptions{Progress: func(doing string, _, _ int) { told = append(told, doing) }})
	if facts.Mode != redisstore.Standalone || !facts.LoggedIn || facts.TLS || facts.Database != 3 || len(facts.Servers) != 1 || len(told) != 1 {
		t.Fatalf("%+v %q", facts, told)
	}
	s := facts.Servers[0]
	if s.Away != "" || !s.Master || !s.Loopback || s.Info["aof_enabled"] != "1" || s.Config["maxmemory"] != "104857600" || s.ConfigUnseen != "" || s.Missing != nil || s.MissingUnseen != "" || s.ScriptFails != "" {
		t.Errorf("%+v", s)
	}
	if s.Config["requirepass"] != "set" || strings.Contains(strings.Join(slices.Collect(values(s.Config)), " "), "secret-word") {
		t.Errorf("the password is told: %q", s.Config)
	}
	if s.Clock.Err != "" || s.Clock.Within <= 0 || s.Clock.Offset.Abs() > s.Clock.Within+100*time.Millisecond { // one clock, which may be stepped
		t.Errorf("%+v", s.Clock)
	}
	if s.Ping.N != 5 || s.Script.N != 5 || s.Ping.P50 > s.Ping.P99 || s.Script.Max == 0 {
		t.Errorf("%+v %+v", s.Ping, s.Script)
	}
	if s.Reach == nil || s.Reach.Err != "" || s.Reach.Asked != 0 {
		t.Errorf("%+v", s.Reach)
	}
}

func values(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, value := range m {
			if !yield(value) {
				return
			}
		}
	}
}

// What is written expires by itself, and with ReadOnly nothing is.
func TestInspectLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	if facts := inspect(t, redisstore.Config{URL: srv.URL()}, redisstore.InspectOptions{ReadOnly: true}); facts.Servers[0].Reach != nil {
		t.Errorf("%+v", facts.Servers[0].Reach)
	}
	if n := srv.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
	inspect(t, redisstore.Config{URL: srv.URL(), Prefix: "mine:"}, redisstore.InspectOptions{})
	keys := srv.Client().Keys(t.Context(), "*").Val()
	if len(keys) != 1 || !strings.HasPrefix(keys[0], "mine:doctor:{") || srv.Client().TTL(t.Context(), keys[0]).Val() > 10*time.Second || srv.Client().TTL(t.Context(), keys[0]).Val() < 0 {
		t.Errorf("%q", keys)
	}
}

func TestInspectFindsTheReplicasOfASetAndItsSentinels(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	url := strings.Split(strings.TrimPrefix(set.URL(), "redis+sentinel://"), ",") // one sentinel names the others
	facts := inspect(t, redisstore.Config{URL: "redis+sentinel://" + url[0] + "/coatcheck", Ack: 2}, redisstore.InspectOptions{})
	if len(facts.Sentinels) != 3 || len(facts.Servers) != 3 {
		t.Fatalf("%d sentinels, %d servers: %+v", len(facts.Sentinels), len(facts.Servers), facts)
	}
	for _, s := range facts.Sentinels {
		if s.Away != "" || s.Master != set.Master().Addr() || s.Quorum != 2 || s.Others != 2 || s.DownAfter != 500*time.Millisecond || len(s.Replicas) != 2 || s.NoQuorum != "" || s.Down {
			t.Errorf("%+v", s)
		}
	}
	masters := 0
	for _, s := range facts.Servers {
		if s.Master {
			masters++
			if len(s.Replicas) != 2 || s.Reach == nil || s.Reach.Asked != 2 || s.Reach.Got != 2 || s.Replicas[0].State != "online" {
				t.Errorf("%+v %+v", s.Replicas, s.Reach)
			}
		} else if s.Reach != nil || s.Info["master_link_status"] != "up" || s.Script.N == 0 {
			t.Errorf("%+v", s)
		}
	}
	if masters != 1 {
		t.Errorf("%d masters", masters)
	}
	// A master that is known by its own URL tells of its replicas as well, and one that is down is told as away.
	set.Replicas()[0].Kill()
	facts = inspect(t, redisstore.Config{URL: set.Master().URL()}, redisstore.InspectOptions{})
	if len(facts.Servers) < 2 || !facts.Servers[0].Master {
		t.Errorf("%+v", facts.Servers)
	}
}

func TestInspectReadsAClustersSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	facts := inspect(t, redisstore.Config{URL: cluster.URL(), Ack: 1}, redisstore.InspectOptions{})
	if facts.Cluster == nil || len(facts.Servers) != 6 || len(facts.Cluster.Nodes) != 6 || facts.Cluster.Uncovered != 0 || len(facts.Cluster.Moving) != 0 || len(facts.Cluster.Failing) != 0 || len(facts.Cluster.States) != 6 {
		t.Fatalf("%+v", facts.Cluster)
	}
	for _, s := range facts.Servers {
		if s.Master && (s.Reach == nil || s.Reach.Err != "" || s.Reach.Got != 1) {
			t.Errorf("%s: %+v", s.Addr, s.Reach)
		}
		if s.Denied != nil || s.DeniedUnseen != "" || s.Missing != nil {
			t.Errorf("%+v", s)
		}
	}
	owner, other := cluster.MasterOf("a"), cluster.Nodes()[0]
	if other == owner {
		other = cluster.Nodes()[1]
	}
	slot := owner.Client().ClusterKeySlot(t.Context(), "a").Val()
	id := other.Client().ClusterMyID(t.Context()).Val()
	if err := owner.Client().Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", id).Err(); err != nil {
		t.Fatal(err)
	}
	for _, node := range cluster.Nodes() { // each forgets a slot
		if err := node.Client().ClusterDelSlots(t.Context(), int(cluster.Nodes()[2].Client().ClusterKeySlot(t.Context(), "b").Val())).Err(); err != nil {
			t.Log(err)
		}
	}
	facts = inspect(t, redisstore.Config{URL: cluster.URL()}, redisstore.InspectOptions{})
	if facts.Cluster.Uncovered != 1 || !slices.Equal(facts.Cluster.Moving, []int{int(slot)}) {
		t.Errorf("%d uncovered, moving %v", facts.Cluster.Uncovered, facts.Cluster.Moving)
	}
}

// A user that may do little is told of as that, with the commands that are denied.
func TestInspectFindsWhatAUserMayNotDo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	user := func(name string, rules ...string) string {
		words := []any{"ACL", "SETUSER", name, "on", ">word"}
		for _, rule := range rules {
			words = append(words, rule)
		}
		if err := srv.Client().Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
		return strings.Replace(srv.URL(), "redis://", "redis://"+name+":word@", 1)
	}
	look := func(url string) redisstore.Inspected {
		return inspect(t, redisstore.Config{URL: url}, redisstore.InspectOptions{}).Servers[0]
	}
	s := look(user("unscripted", "~*", "&*", "+@all", "-eval", "-evalsha"))
	if !slices.Equal(s.Denied, []string{"EVAL", "EVALSHA"}) || !strings.Contains(s.ScriptFails, "NOPERM") {
		t.Errorf("%q %q %q", s.Denied, s.DeniedUnseen, s.ScriptFails)
	}
	s = look(user("elsewhere", "~other:*", "&*", "+@all"))
	if !slices.Contains(s.Denied, "GET") || slices.Contains(s.Denied, "TIME") || !strings.Contains(s.Reach.Err, "NOPERM") {
		t.Errorf("%q %+v", s.Denied, s.Reach)
	}
	s = look(user("managed", "~*", "&*", "+@all", "-@admin", "-@dangerous", "+info")) // as hosted Redis is
	if s.ConfigUnseen == "" || len(s.Config) != 0 || s.DeniedUnseen == "" || s.ScriptFails != "" || s.Info["redis_version"] == "" || s.Reach.Err != "" {
		t.Errorf("%q %q %q %+v", s.ConfigUnseen, s.DeniedUnseen, s.ScriptFails, s.Reach)
	}
	s = look(user("mute", "+ping"))
	if s.Away != "" || len(s.Info) != 0 || s.MissingUnseen == "" || s.Clock.Err == "" || s.ScriptFails == "" {
		t.Errorf("%+v", s)
	}
}

func TestInspectFindsCommandsThatWereRenamed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--rename-command", "INCRBY", "incrby-hidden", "--rename-command", "CONFIG", "")
	s := inspect(t, redisstore.Config{URL: srv.URL()}, redisstore.InspectOptions{}).Servers[0]
	if !slices.Equal(s.Missing, []string{"INCRBY"}) || s.ConfigUnseen == "" || s.Denied != nil {
		t.Errorf("%q %q %q", s.Missing, s.ConfigUnseen, s.Denied)
	}
}

func TestInspectRefusesWhatHasNoRedis(t *testing.T) {
	t.Parallel()
	if _, err := redisstore.Inspect(t.Context(), redisstore.Config{URL: "embedded:"}, redisstore.InspectOptions{}); !errors.Is(err, redisstore.ErrNotInspected) || !errors.Is(err, redisstore.ErrRefused) {
		t.Error(err)
	}
	if _, err := redisstore.Inspect(t.Context(), redisstore.Config{URL: "nonsense"}, redisstore.InspectOptions{}); err == nil {
		t.Error("nonsense is inspected")
	}
	srv := redistest.Start(t)
	srv.Kill()
	for _, url := range []string{srv.URL(), "redis+sentinel://" + srv.Addr() + "/m", "redis+cluster://" + srv.Addr()} {
		_, err := redisstore.Inspect(t.Context(), redisstore.Config{URL: url}, redisstore.InspectOptions{})
		if !errors.Is(err, redisstore.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What scripts call is what is looked for.
func TestInspectLooksForEveryCommandThatScriptsCall(t *testing.T) {
	t.Parallel()
	looked := map[string]bool{}
	for _, name := range redisstore.UsedCommands() {
		looked[name] = true
	}
	files, err := filepath.Glob("../scripts/*.lua")
	parts, errParts := filepath.Glob("../scripts/lib/*.lua")
	if err != nil || errParts != nil || len(files) < 20 || len(parts) == 0 {
		t.Fatal(len(files), err, errParts)
	}
	call := regexp.MustCompile(`redis\.p?call\(\s*['"](\w+)['"]`)
	for _, file := range append(files, parts...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range call.FindAllStringSubmatch(string(text), -1) {
			if !looked[strings.ToUpper(found[1])] {
				t.Errorf("%s calls %s", file, found[1])
			}
		}
	}
}

func TestSweepRemovesWhatBeginsWithAText(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		for _, name := range []string{"bench:a", "bench:b", "bench", "orders", "xbench:a"} {
			for range 3 {
				if _, err := bumped(t.Context(), store, name); err != nil {
					t.Fatal(err)
				}
			}
		}
		list := script("list", "for _, name in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 0, name) end return {'ok'}", false)
		if _, err := store.Run(t.Context(), list, []string{store.Key("workers", "names")}, "bench:a", "bench:b", "bench", "orders", "zebra"); err != nil {
			t.Fatal(err)
		}
		removed, err := store.Sweep(t.Context(), "bench:", "workers")
		if err != nil || removed != 2 {
			t.Fatalf("%d %v", removed, err)
		}
		for name, want := range map[string]int64{"bench:a": 0, "bench:b": 0, "bench": 3, "orders": 3, "xbench:a": 3} {
			if n := counted(t, store, name); n != want {
				t.Errorf("%s is %d", name, n)
			}
		}
		names := script("names", "return redis.call('ZRANGE', KEYS[1], 0, -1)", true)
		left, err := store.Run(t.Context(), names, []string{store.Key("workers", "names")})
		if err != nil || !slices.Equal([]string(left), []string{"bench", "orders", "zebra"}) {
			t.Errorf("%q %v", left, err)
		}
		for _, wrong := range []string{"", "a", "*", "ab*", "a{b"} {
			if _, err := store.Sweep(t.Context(), wrong); !errors.Is(err, redisstore.ErrRefused) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
	})
}

// A server whose clock is another is found to be as far off as it is, also where the way to it takes longer than the way back.
func TestInspectMeasuresTheOffsetOfAClock(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{7 * time.Second, -7 * time.Second} {
		srv := clockOff(t, off)
		s := inspect(t, redisstore.Config{URL: "redis://" + srv}, redisstore.InspectOptions{}).Servers[0]
		if s.Clock.Err != "" || s.Clock.Within < time.Millisecond || (s.Clock.Offset-off).Abs() > s.Clock.Within+100*time.Millisecond { // this host's may be stepped
			t.Errorf("%v: %+v", off, s.Clock)
		}
	}
}

// clockOff is a server that tells another time, after a pause, and knows little else.
func clockOff(t *testing.T, off time.Duration) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	answer := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			words, err := command(in)
			if err != nil {
				return
			}
			reply := "-ERR unknown command\r\n"
			switch strings.ToLower(words[0]) {
			case "ping":
				reply = "+PONG\r\n"
			case "time":
				time.Sleep(2 * time.Millisecond)
				now := time.Now().Add(off)
				seconds, micros := strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()/1000)
				reply = fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(seconds), seconds, len(micros), micros)
			}
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { answer(conn) })
		}
	})
	return listener.Addr().String()
}
