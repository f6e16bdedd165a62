package redisprobe_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// inspect looks at a Redis, with few samples.
func inspect(t *testing.T, config redisstore.Config, options redisprobe.Options) doctor.Inspection {
	t.Helper()
	options.Samples = 5
	options.Patience = patience
	facts, err := redisprobe.Inspect(t.Context(), config, options)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return facts
}

func TestInspectTellsTheFactsOfAServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--requirepass", "secret-word", "--notify-keyspace-events", "KEA")
	url := strings.Replace(srv.URL(), "redis://", "redis://:secret-word@", 1)
	var told []string
	facts := inspect(t, redisstore.Config{URL: url + "/3"}, redisprobe.Options{Progress: func(doing string, _, _ int) { told = append(told, doing) }})
	about := facts
	about.Servers = nil
	expect.Equal(t, "inspection of the whole", about, doctor.Inspection{Mode: redisstore.ModeStandalone, Address: about.Address, LoggedIn: true, Database: 3})
	expect.Equal(t, "calls of Progress", len(told), 1)
	expect.MustEqual(t, "number of servers", len(facts.Servers), 1)
	s := facts.Servers[0]
	expect.Equal(t, "why the server is away", s.Away, "")
	expect.Equal(t, "it is a master", s.Master, true)
	expect.Equal(t, "it is on this host", s.Loopback, true)
	expect.Equal(t, "INFO: aof_enabled", s.Info["aof_enabled"], "1")
	expect.Equal(t, "CONFIG: notify-keyspace-events", s.Config["notify-keyspace-events"], "AKE")
	expect.Equal(t, "why its configuration is not known", s.ConfigUnseen, "")
	expect.Equal(t, "commands that it does not know", s.Missing, nil)
	expect.Equal(t, "commands that are denied", s.Denied, nil)
	expect.Equal(t, "why neither is known", s.Untried, "")
	expect.Equal(t, "failure of a script", s.ScriptFails, "")
	if strings.Contains(fmt.Sprint(s.Config), "secret-word") {
		t.Errorf("the password is told: %q", s.Config)
	}
	expect.Equal(t, "why the clock is not known", s.Clock.Err, "")
	// one clock, which may be stepped
	if s.Clock.Within <= 0 || s.Clock.Offset.Abs() > s.Clock.Within+100*time.Millisecond {
		t.Errorf("clock of a server on this host: got %+v, want an offset of Within or less", s.Clock)
	}
	expect.Equal(t, "samples of PING", s.Ping.N, 5)
	expect.Equal(t, "samples of a script", s.Script.N, 5)
	if s.Ping.P50 > s.Ping.P99 || s.Script.Max == 0 {
		t.Errorf("round trips: got PING %+v, script %+v, want P50 up to P99, and a longest", s.Ping, s.Script)
	}
	expect.Equal(t, "what became of a write", s.Reach, &doctor.Reach{}, cmpopts.IgnoreFields(doctor.Reach{}, "Took"))
}

func TestInspectFindsMarkersOfANewerFormat(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for key, text := range map[string]string{"counters:{marker}": "@2:1.1.0 a", "locks:{marker}": "@1:1.0.0 a", "segments:{marker}": "a 1 0 1", "incarnation:{store}": "@\n"} {
		expect.Error(t, "SET "+key, srv.Client().Set(t.Context(), "coatcheck:"+key, text, 0).Err(), nil)
	}
	facts := inspect(t, redisstore.Config{URL: srv.URL()}, redisprobe.Options{ReadOnly: true})
	expect.MustEqual(t, "number of servers", len(facts.Servers), 1)
	expect.Equal(t, "newer records", facts.Servers[0].Newer, []string{"counters:{marker} @2:1.1.0", "incarnation:{store} @"})
}

// What is written expires by itself, and with ReadOnly nothing is.
func TestInspectLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	facts := inspect(t, redisstore.Config{URL: srv.URL()}, redisprobe.Options{ReadOnly: true})
	expect.Equal(t, "what became of a write that is not to be", facts.Servers[0].Reach, nil)
	expect.Equal(t, "keys that were written with ReadOnly", srv.Client().DBSize(t.Context()).Val(), 0)
	inspect(t, redisstore.Config{URL: srv.URL(), Prefix: "mine:"}, redisprobe.Options{})
	keys := srv.Client().Keys(t.Context(), "*").Val()
	expect.MustEqual(t, fmt.Sprintf("number of keys, which are %q", keys), len(keys), 1)
	if ttl := srv.Client().TTL(t.Context(), keys[0]).Val(); !strings.HasPrefix(keys[0], "mine:doctor:{") || ttl > 10*time.Second || ttl < 0 {
		t.Errorf("Inspect left %q for %v, want a key that begins with mine:doctor:{ for 10s at most", keys[0], ttl)
	}
}

func TestInspectFindsTheReplicasOfASetAndItsSentinels(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	// one sentinel names the others
	url := strings.Split(strings.TrimPrefix(set.URL(), "redis+sentinel://"), ",")
	facts := inspect(t, redisstore.Config{URL: "redis+sentinel://" + url[0] + "/coatcheck", Ack: 2}, redisprobe.Options{})
	if len(facts.Sentinels) != 3 || len(facts.Servers) != 3 {
		t.Fatalf("%d sentinels, %d servers: %+v", len(facts.Sentinels), len(facts.Servers), facts)
	}
	for _, s := range facts.Sentinels {
		asked := "what sentinel " + s.Addr + " says"
		expect.Equal(t, asked+": replicas", len(s.Replicas), 2)
		s.Replicas = nil
		expect.Equal(t, asked, s, doctor.InspectedSentinel{Addr: s.Addr, Master: set.Master().Addr(), Quorum: 2, DownAfter: 500 * time.Millisecond})
	}
	masters := 0
	for _, s := range facts.Servers {
		if s.Master {
			masters++
			expect.Equal(t, "what became of the master's write", s.Reach, &doctor.Reach{Asked: 2, Got: 2}, cmpopts.IgnoreFields(doctor.Reach{}, "Took"))
			expect.MustEqual(t, "number of the master's replicas", len(s.Replicas), 2)
			expect.Equal(t, "state of its first replica", s.Replicas[0].State, "online")
		} else {
			expect.Equal(t, "what became of a replica's write", s.Reach, nil)
			expect.Equal(t, "INFO of a replica: master_link_status", s.Info["master_link_status"], "up")
			if s.Script.N == 0 {
				t.Errorf("round trips of scripts to replica %s: got none, want some", s.Addr)
			}
		}
	}
	expect.Equal(t, "number of masters", masters, 1)
	// A master that is known by its own URL tells of its replicas as well, and one that is down is
	// told as away.
	set.Replicas()[0].Kill()
	facts = inspect(t, redisstore.Config{URL: set.Master().URL()}, redisprobe.Options{})
	if len(facts.Servers) < 2 || !facts.Servers[0].Master {
		t.Errorf("servers that the master's URL leads to: got %+v, want the master and its replicas", facts.Servers)
	}
}

func TestInspectReadsAClustersSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	facts := inspect(t, redisstore.Config{URL: cluster.URL(), Ack: 1}, redisprobe.Options{})
	expect.MustEqual(t, "number of servers", len(facts.Servers), 6)
	if facts.Cluster == nil {
		t.Fatal("got no cluster, want one")
	}
	about := facts.Cluster
	expect.Equal(t, "nodes of the cluster", len(about.Nodes), 6)
	expect.Equal(t, "states that nodes tell", len(about.States), 6)
	expect.Equal(t, "slots that no node serves", about.Uncovered, 0)
	expect.Equal(t, "slots that are on the move", len(about.Moving), 0)
	expect.Equal(t, "nodes that fail", len(about.Failing), 0)
	for _, s := range facts.Servers {
		if s.Master {
			expect.Equal(t, "what became of a write to "+s.Addr, s.Reach, &doctor.Reach{Asked: 1, Got: 1}, cmpopts.IgnoreFields(doctor.Reach{}, "Took"))
		}
		expect.Equal(t, "commands denied by "+s.Addr, s.Denied, nil)
		expect.Equal(t, "commands unknown to "+s.Addr, s.Missing, nil)
		expect.Equal(t, "why they are not known", s.Untried, "")
	}
	owner, other := cluster.MasterOf("a"), cluster.Nodes()[0]
	if other == owner {
		other = cluster.Nodes()[1]
	}
	slot := owner.Client().ClusterKeySlot(t.Context(), "a").Val()
	id := other.Client().ClusterMyID(t.Context()).Val()
	do(t, owner, "CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	lost := int(owner.Client().ClusterKeySlot(t.Context(), "b").Val())
	expect.Eventually(t, "one slot is missed", func() bool {
		// Each time anew: a node takes a slot back that another has still announced. One without it
		// refuses.
		for _, node := range cluster.Nodes() {
			_ = node.Client().ClusterDelSlots(t.Context(), lost).Err()
		}
		facts = inspect(t, redisstore.Config{URL: cluster.URL()}, redisprobe.Options{})
		return facts.Cluster.Uncovered == 1
	})
	expect.Equal(t, "the slots that move", facts.Cluster.Moving, []int{int(slot)})
}

// Doctor finds a replica that tells its master another address than the cluster lists.
func TestReplicaUnderAnotherAddressThanTheListHasIsFound(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	config := redisstore.Config{URL: cluster.URL(), Ack: redisstore.AckAll}
	worst := func() (worst doctor.Severity) {
		facts := inspect(t, config, redisprobe.Options{})
		for _, found := range doctor.Examine(facts, doctor.Settings{Ack: config.Ack}) {
			if found.ID == "replica-address" {
				worst = max(worst, found.Severity)
			}
		}
		return worst
	}
	expect.Equal(t, "in order", worst(), doctor.OK)
	replica := cluster.Nodes()[3]
	do(t, replica, "CONFIG", "SET", "replica-announce-ip", "127.0.0.9")
	for _, master := range cluster.Nodes()[:3] {
		do(t, master, "CLIENT", "KILL", "TYPE", "replica")
	}
	expect.Eventually(t, "doctor finds it", func() bool { return worst() == doctor.Critical })
}

// A user that may do little is told of as that, with the commands that are denied.
func TestInspectFindsWhatAUserMayNotDo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	user := func(name string, rules ...string) string {
		do(t, srv, append([]any{"ACL", "SETUSER", name, "on", ">word"}, words(rules)...)...)
		return strings.Replace(srv.URL(), "redis://", "redis://"+name+":word@", 1)
	}
	look := func(url string) doctor.Inspected {
		return inspect(t, redisstore.Config{URL: url}, redisprobe.Options{}).Servers[0]
	}
	s := look(user("unscripted", "~*", "&*", "+@all", "-eval", "-evalsha"))
	expect.Equal(t, "commands denied to unscripted", s.Denied, []string{"EVAL", "EVALSHA"})
	expect.Contains(t, "failure of a script of unscripted", s.ScriptFails, "NOPERM")
	s = look(user("elsewhere", "~other:*", "&*", "+@all"))
	if !slices.Contains(s.Denied, "GET") || slices.Contains(s.Denied, "TIME") {
		t.Errorf("commands denied to elsewhere: got %q, want GET among them and TIME not", s.Denied)
	}
	expect.Contains(t, "failure of a write by elsewhere", s.Reach.Err, "NOPERM")
	// as hosted Redis is
	s = look(user("managed", "~*", "&*", "+@all", "-@admin", "-@dangerous", "+info"))
	expect.Equal(t, "configuration seen by managed", len(s.Config), 0)
	expect.Equal(t, "failure of a script of managed", s.ScriptFails, "")
	expect.Equal(t, "failure of a write by managed", s.Reach.Err, "")
	expect.Equal(t, "commands denied to managed", s.Denied, nil)
	if s.ConfigUnseen == "" || s.Info["redis_version"] == "" {
		t.Errorf("seen by managed: got %+v, want a version, and why the configuration is not known", s)
	}
	s = look(user("mute", "+ping"))
	expect.Equal(t, "why the server is away for mute", s.Away, "")
	expect.Equal(t, "INFO seen by mute", len(s.Info), 0)
	if len(s.Denied) != len(redisprobe.NeededCommands())-1 || s.Clock.Err == "" || s.ScriptFails == "" {
		t.Errorf("seen by mute: got %+v, want everything but PING denied, and why clock and scripts are not known", s)
	}
}

func TestInspectFindsCommandsThatWereRenamed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--rename-command", "INCRBY", "incrby-hidden", "--rename-command", "CONFIG", "")
	s := inspect(t, redisstore.Config{URL: srv.URL()}, redisprobe.Options{}).Servers[0]
	expect.Equal(t, "commands that the server does not know", s.Missing, []string{"INCRBY"})
	expect.Equal(t, "commands that it denies", s.Denied, nil)
	if s.ConfigUnseen == "" {
		t.Error("no reason is told for the configuration that is not seen")
	}
}

// Without a login every answer is that to AUTH, and says nothing of the command that was asked.
func TestServerThatTakesNoLoginIsAway(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	config := redisstore.Config{URL: strings.Replace(srv.URL(), "//", "//svc:s3cretpw@", 1), Timeout: time.Minute}
	facts, err := redisprobe.Inspect(t.Context(), config, redisprobe.Options{Samples: 1, Patience: patience})
	expect.Error(t, "Inspect", err, redisstore.ErrUnavailable)
	expect.MustEqual(t, "number of servers", len(facts.Servers), 1)
	expect.Contains(t, "why it is away", facts.Servers[0].Away, "unknown command 'auth'")
	for what, text := range map[string]string{"Inspect": fmt.Sprint(err), "Unfit": unfit(t, config)} {
		expect.Contains(t, what, text, "unknown command 'auth'", "********")
		if strings.Contains(text, "s3cretpw") {
			t.Errorf("%s tells the password: %s", what, text)
		}
	}
	expect.Contains(t, "Unfit", unfit(t, config), "does not take the login or the database")
}

func TestInspectRefusesWhatHasNoRedis(t *testing.T) {
	t.Parallel()
	_, err := redisprobe.Inspect(t.Context(), redisstore.Config{URL: "embedded:"}, redisprobe.Options{})
	expect.Error(t, "Inspect of the embedded store", err, redisprobe.ErrNotInspected)
	expect.Error(t, "Inspect of the embedded store", err, redisstore.ErrRefused)
	_, err = redisprobe.Inspect(t.Context(), redisstore.Config{URL: "nonsense"}, redisprobe.Options{})
	expect.Equal(t, "Inspect of nonsense is refused", err != nil, true)
	srv := redistest.Start(t)
	srv.Kill()
	for _, url := range []string{srv.URL(), "redis+sentinel://" + srv.Addr() + "/m", "redis+cluster://" + srv.Addr()} {
		_, err := redisprobe.Inspect(t.Context(), redisstore.Config{URL: url}, redisprobe.Options{})
		expect.Error(t, "Inspect of "+url, err, redisstore.ErrUnavailable)
		expect.Contains(t, "Inspect of "+url, fmt.Sprint(err), "refused")
	}
}

// A server whose clock is another is found to be as far off as it is, also where the way to it
// takes longer than the way back.
func TestInspectMeasuresTheOffsetOfAClock(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{7 * time.Second, -7 * time.Second} {
		srv := clockOff(t, off)
		s := inspect(t, redisstore.Config{URL: "redis://" + srv}, redisprobe.Options{}).Servers[0]
		expect.Equal(t, "why the clock is not known", s.Clock.Err, "")
		// this host's may be stepped
		if s.Clock.Within < time.Millisecond || (s.Clock.Offset-off).Abs() > s.Clock.Within+100*time.Millisecond {
			t.Errorf("clock that is off by %v: got %+v, want that, give or take Within of 1ms or more", off, s.Clock)
		}
	}
}

// clockOff is a server that tells another time, after a pause, and knows little else.
func clockOff(t *testing.T, off time.Duration) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.MustEqual(t, "the error of listening", err, nil)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	answer := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			words, err := redistest.ReadCommand(in)
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
