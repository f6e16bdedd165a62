package doctor

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// healthy is a server of which nothing is to be said.
func healthy(addr string, master bool) Inspected {
	role := "master"
	if !master {
		role = "slave"
	}
	return Inspected{
		Addr: addr, Master: master,
		Info: map[string]string{
			"redis_version": "7.0.15", "role": role, "aof_enabled": "1", "aof_last_write_status": "ok", "aof_last_bgrewrite_status": "ok", "rdb_last_bgsave_status": "ok",
			"maxmemory_policy": "noeviction", "maxmemory": "1000000", "used_memory": "500000", "connected_clients": "5", "master_link_status": map[bool]string{false: "up"}[master],
			"slave_priority": "100",
		},
		Config: map[string]string{
			"appendfsync": "always", "save": "", "min-replicas-to-write": "1", "min-replicas-max-lag": "10", "repl-backlog-size": "67108864", "repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0", "replica-priority": "100",
			"replica-serve-stale-data": "no", "replica-read-only": "yes", "maxclients": "10000", "timeout": "0", "tcp-keepalive": "300", "busy-reply-threshold": "5000",
			"notify-keyspace-events": "", "protected-mode": "yes", "disable-thp": "yes", "cluster-require-full-coverage": "no", "cluster-allow-replica-migration": "no",
		},
		Incarnation: "0f0f",
		Clock:       Clock{Within: 100 * time.Microsecond},
		Ping:        Latency{N: 200, P50: time.Millisecond, P99: 2 * time.Millisecond, Max: 3 * time.Millisecond},
		Script:      Latency{N: 200, P50: time.Millisecond, P99: 2 * time.Millisecond, Max: 3 * time.Millisecond},
	}
}

// patient is a Sentinel set, or with few changes another kind, which is as it should be.
func patient() (*Inspection, *Settings) {
	master, replica := healthy("10.0.0.1:6379", true), healthy("10.0.0.2:6379", false)
	master.Replicas = []InspectedReplica{{Addr: replica.Addr, State: "online"}}
	master.Reach = &Reach{Asked: 1, Got: 1, Took: time.Millisecond}
	facts := &Inspection{Mode: redisstore.ModeSentinel, LoggedIn: true, TLS: true, Servers: []Inspected{master, replica}}
	for _, addr := range []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"} {
		facts.Sentinels = append(facts.Sentinels, InspectedSentinel{Addr: addr, Master: master.Addr, Quorum: 2, DownAfter: 5 * time.Second, Replicas: []string{replica.Addr}})
	}
	return facts, &Settings{Ack: 1}
}

// clustered makes the patient a cluster of three masters, the last without a replica.
func clustered(facts *Inspection) {
	facts.Mode, facts.Sentinels = redisstore.ModeCluster, nil
	facts.Cluster = &InspectedCluster{States: map[string]string{}}
	for i, addr := range []string{"10.0.0.1:6379", "10.0.0.3:6379", "10.0.0.4:6379"} {
		facts.Cluster.Nodes = append(facts.Cluster.Nodes, ClusterNode{Addr: addr, Master: true, Slots: [][2]int{{i * 5000, i*5000 + 4999}}})
		facts.Cluster.States[addr] = "ok"
	}
}

// symptom is a change that makes the patient ill, and what the check of that name says then.
type symptom struct {
	id    string
	says  string
	worst Severity
	harm  func(facts *Inspection, with *Settings)
}

func onMaster(change func(s *Inspected)) func(*Inspection, *Settings) {
	return func(facts *Inspection, _ *Settings) { change(&facts.Servers[0]) }
}

// trusting changes the master of a store that trusts restarts.
func trusting(change func(s *Inspected)) func(*Inspection, *Settings) {
	return func(facts *Inspection, settings *Settings) {
		settings.Restarts = redisstore.RestartsTrust
		change(&facts.Servers[0])
	}
}

func onReplica(change func(s *Inspected)) func(*Inspection, *Settings) {
	return func(facts *Inspection, _ *Settings) { change(&facts.Servers[1]) }
}

func info(name, value string) func(s *Inspected) {
	return func(s *Inspected) { s.Info[name] = value }
}

func setTo(name, value string) func(s *Inspected) {
	return func(s *Inspected) { s.Config[name] = value }
}

func inCluster(change func(c *InspectedCluster)) func(*Inspection, *Settings) {
	return func(facts *Inspection, _ *Settings) {
		clustered(facts)
		change(facts.Cluster)
	}
}

func bySentinels(change func(all []InspectedSentinel)) func(*Inspection, *Settings) {
	return func(facts *Inspection, _ *Settings) { change(facts.Sentinels) }
}

func everywhere(change func(s *Inspected)) func(*Inspection, *Settings) {
	return func(facts *Inspection, _ *Settings) {
		for i := range facts.Servers {
			change(&facts.Servers[i])
		}
	}
}

// another gives the patient one replica more.
func another(facts *Inspection) {
	third := healthy("10.0.0.3:6379", false)
	facts.Servers = append(facts.Servers, third)
	facts.Servers[0].Replicas = append(facts.Servers[0].Replicas, InspectedReplica{Addr: third.Addr, State: "online"})
}

var symptoms = []symptom{
	{"away", "refused", Warning, onReplica(func(s *Inspected) { *s = Inspected{Addr: s.Addr, Away: "connection refused"} })},
	{"role", "several servers", Critical, onReplica(func(s *Inspected) { s.Master = true })},
	{"role", "no server", Critical, onMaster(func(s *Inspected) { s.Master = false })},
	{"role", "names a replica", Critical, func(f *Inspection, _ *Settings) { f.Mode, f.Servers = redisstore.ModeStandalone, f.Servers[1:] }},
	{"role", "node of a cluster", Critical, func(f *Inspection, _ *Settings) {
		f.Mode = redisstore.ModeStandalone
		f.Servers[0].Info["cluster_enabled"] = "1"
	}},
	{"version", "Redis 6.0.9", Critical, onMaster(info("redis_version", "6.0.9"))},
	{"version", "cannot be seen", Note, onMaster(info("redis_version", ""))},
	{"version", "Valkey 8.0.1", OK, onMaster(info("valkey_version", "8.0.1"))},
	{"keydb", "active replica", Critical, onMaster(info("role", "active-replica"))},
	{"keydb", "KeyDB, with --ack", Critical, func(f *Inspection, with *Settings) { f.Servers[0].Info["mvcc_depth"], with.Ack = "0", 1 }},
	{"keydb", "KeyDB", Warning, func(f *Inspection, with *Settings) { f.Servers[0].Info["mvcc_depth"], with.Ack = "0", 0 }},
	{"version", "Redis 6.2.0", OK, onMaster(info("redis_version", "6.2.0"))},
	{"commands", "INCRBY", Critical, onMaster(func(s *Inspected) { s.Missing = []string{"INCRBY"} })},
	{"commands", "cannot be seen", Note, onMaster(func(s *Inspected) { s.Untried = "i/o timeout" })},
	{"commands", "WAIT", Critical, onMaster(func(s *Inspected) { s.Missing = []string{"WAIT"} })},
	{"commands", "do not need: WAIT", Note, func(f *Inspection, with *Settings) { f.Servers[0].Missing, with.Ack = []string{"WAIT"}, 0 }},
	{"commands", "no PUBLISH", Warning, onMaster(func(s *Inspected) { s.Missing = []string{"PUBLISH"} })},
	{"rights", "may not run WAIT", Critical, onMaster(func(s *Inspected) { s.Denied = []string{"WAIT"} })},
	{"rights", "all that is needed", OK, func(f *Inspection, with *Settings) { f.Servers[0].Denied, with.Ack = []string{"WAIT"}, 0 }},
	{"rights", "may not run PUBLISH, SUBSCRIBE", Warning, onMaster(func(s *Inspected) { s.Denied = []string{"PUBLISH", "SUBSCRIBE"} })},
	{"rights", "may not run INFO", Warning, onMaster(func(s *Inspected) { s.Denied = []string{"INFO"} })},
	{"rights", "may not run INFO", Critical, func(f *Inspection, with *Settings) {
		f.Servers[0].Denied, with.Ack = []string{"INFO"}, redisstore.AckAll
	}},
	{"rights", "may not run EVAL", Critical, onMaster(func(s *Inspected) { s.Denied = []string{"EVAL"} })},
	{"scripts", "NOPERM", Critical, onMaster(func(s *Inspected) { s.ScriptFails = "NOPERM no eval" })},
	{"incarnation", "master_replid is zeros", Critical, onMaster(func(s *Inspected) { s.NoIncarnation = "master_replid is zeros" })},
	{"incarnation", "--restarts trust", OK, trusting(func(s *Inspected) { s.NoIncarnation = "master_replid is zeros" })},
	{"formats", "counters:{marker} @2:1.1.0", Critical, onMaster(func(s *Inspected) { s.Newer = []string{"counters:{marker} @2:1.1.0"} })},
	{"write", "OOM", Critical, onMaster(func(s *Inspected) { s.Reach.Err = "OOM command not allowed" })},

	{"persistence", "nothing on disk", Critical, onMaster(info("aof_enabled", "0"))},
	{"persistence", "nothing on disk", Warning, onReplica(info("aof_enabled", "0"))},
	{"persistence", "from time to time", Warning, onMaster(func(s *Inspected) { s.Info["aof_enabled"], s.Config["save"] = "0", "3600 1" })},
	{"persistence", "cannot be seen", Warning, onMaster(func(s *Inspected) {
		s.Info["aof_enabled"] = "0"
		delete(s.Config, "save")
	})},
	{"persistence", "cannot be seen", Warning, onMaster(func(s *Inspected) { s.Info, s.Config = map[string]string{"role": "master"}, nil })},
	{"appendfsync", "appendfsync no", Warning, onMaster(setTo("appendfsync", "no"))},
	{"appendfsync", "everysec", Note, onMaster(setTo("appendfsync", "everysec"))},
	{"appendfsync", "rewritten", Warning, onMaster(func(s *Inspected) {
		s.Config["appendfsync"], s.Config["no-appendfsync-on-rewrite"] = "everysec", "yes"
	})},
	{"restarts", "and appendonly no", Critical, trusting(info("aof_enabled", "0"))},
	{"restarts", "and appendfsync everysec", Critical, trusting(setTo("appendfsync", "everysec"))},
	{"restarts", "cannot be seen", Warning, trusting(func(s *Inspected) { delete(s.Config, "appendfsync") })},
	{"restarts", "--ack 1 of 2 replicas", Critical, trusting(func(s *Inspected) {
		s.Replicas = append(s.Replicas, InspectedReplica{Addr: "10.0.0.3:6379", State: "online"})
	})},
	{"restarts", "and appendfsync always", OK, trusting(func(*Inspected) {})},
	{"disk-errors", "err", Critical, onMaster(info("aof_last_write_status", "err"))},
	{"eviction", "allkeys-lru", Critical, onMaster(info("maxmemory_policy", "allkeys-lru"))},
	{"eviction", "no limit", Warning, onMaster(func(s *Inspected) { s.Info["maxmemory_policy"], s.Info["maxmemory"] = "volatile-ttl", "0" })},
	{"memory", "90%", Warning, onMaster(info("used_memory", "900000"))},
	{"memory", "99%", Critical, onMaster(info("used_memory", "990000"))},
	{"memory", "not set", Note, onMaster(info("maxmemory", "0"))},

	{"replicas", "1 replicas, with --ack 2", Critical, func(_ *Inspection, with *Settings) { with.Ack = 2 }},
	{"replicas", "--ack 0", Warning, func(_ *Inspection, with *Settings) { with.Ack = 0 }},
	{"replicas", "no replicas", Note, func(f *Inspection, with *Settings) { f.Servers[0].Replicas, with.Ack = nil, 0 }},
	{"ack", "2 replicas can become master", Warning, func(f *Inspection, _ *Settings) { another(f) }},
	{"absent-replica", "--ack 1 needs every one of 1 replica", Note, func(*Inspection, *Settings) {}},
	{"absent-replica", "--ack 2 needs every one of 2 replicas", Note, func(f *Inspection, with *Settings) {
		another(f)
		with.Ack = 2
	}},
	{"replicas", "2 replicas, --ack all", OK, func(f *Inspection, with *Settings) {
		another(f)
		with.Ack = redisstore.AckAll
	}},
	{"replica-address", "10.0.0.2:6379", Critical, func(f *Inspection, with *Settings) {
		clustered(f)
		with.Ack = redisstore.AckAll
	}},
	{"replica-address", "that the cluster lists", OK, func(f *Inspection, with *Settings) {
		clustered(f)
		f.Cluster.Nodes = append(f.Cluster.Nodes, ClusterNode{Addr: "10.0.0.2:6379"})
		with.Ack = redisstore.AckAll
	}},
	{"replicas", "0 replicas, with --ack all", Critical, func(f *Inspection, with *Settings) {
		f.Servers[0].Replicas, with.Ack = nil, redisstore.AckAll // a sentinel lists one
	}},
	{"ack", "--ack all covers each of 2", OK, func(f *Inspection, with *Settings) {
		another(f)
		with.Ack = redisstore.AckAll
	}},
	{"absent-replica", "--ack all needs every one of 2 replicas", Note, func(f *Inspection, with *Settings) {
		another(f)
		with.Ack = redisstore.AckAll
	}},
	{"restarts", "and appendfsync always", OK, func(f *Inspection, with *Settings) {
		another(f)
		with.Restarts, with.Ack = redisstore.RestartsTrust, redisstore.AckAll
	}},
	{"wait-reach", "WAIT is refused, with --ack all", Critical, func(f *Inspection, with *Settings) {
		f.Servers[0].Reach.WaitErr, with.Ack = "ERR unknown command 'wait'", redisstore.AckAll
	}},
	{"absent-replica", "writes go on while 1 of them are away", OK, func(f *Inspection, _ *Settings) { another(f) }},
	{"min-replicas", "0", Note, onMaster(setTo("min-replicas-to-write", "0"))},
	{"min-replicas", "0", Warning, func(f *Inspection, with *Settings) {
		f.Servers[0].Config["min-replicas-to-write"], with.Ack = "0", 0
	}},
	{"min-replicas", "max-lag 0", Warning, onMaster(setTo("min-replicas-max-lag", "0"))},
	{"min-replicas", "2, and 1", Critical, onMaster(setTo("min-replicas-to-write", "2"))},
	{"wait-reach", "0 replicas of 1", Critical, onMaster(func(s *Inspected) { s.Reach.Got = 0 })},
	{"wait-reach", "WAIT is refused, with --ack 1", Critical, onMaster(func(s *Inspected) { s.Reach.WaitErr = "ERR unknown command 'wait'" })},
	{"wait-reach", "WAIT is refused", Note, func(f *Inspection, with *Settings) {
		f.Servers[0].Reach.WaitErr, with.Ack = "ERR unknown command 'wait'", 0
	}},
	{"wait-reach", "1 replicas of 2", Warning, onMaster(func(s *Inspected) { s.Reach.Asked = 2 })},
	{"replica-lag", "silent for 30s", Warning, onMaster(func(s *Inspected) { s.Replicas[0].Lag = 30 * time.Second })},
	{"replica-lag", "wait_bgsave", Warning, onMaster(func(s *Inspected) { s.Replicas[0].State = "wait_bgsave" })},
	{"replica-link", "down", Warning, onReplica(info("master_link_status", "down"))},
	{"replica-priority", "no replica can", Warning, onReplica(setTo("replica-priority", "0"))},
	{"replica-priority", "1 of 2", Note, func(f *Inspection, _ *Settings) {
		f.Servers = append(f.Servers, healthy("10.0.0.3:6379", false))
		f.Servers[2].Config["replica-priority"] = "0"
	}},
	{"replica-writes", "takes writes", Warning, onReplica(setTo("replica-read-only", "no"))},
	{"replica-stale", "yes", Note, onReplica(setTo("replica-serve-stale-data", "yes"))},
	{"repl-backlog", "1.0 MiB", Note, onMaster(setTo("repl-backlog-size", "1048576"))},

	{"sync-delay", "repl-diskless-sync-delay 5", Note, onMaster(setTo("repl-diskless-sync-delay", "5"))},

	{"clock-servers", "3s apart", Critical, onReplica(func(s *Inspected) { s.Clock.Offset = -3 * time.Second })},
	{"clock-servers", "too slow to tell", Note, onReplica(func(s *Inspected) {
		s.Clock.Offset, s.Clock.Within = 900*time.Millisecond, 400*time.Millisecond
	})},
	{"clock-host", "behind this host's", Warning, everywhere(func(s *Inspected) { s.Clock.Offset = -time.Minute })},
	{"clock-host", "cannot be seen", Note, onMaster(func(s *Inspected) { s.Clock.Err = "NOPERM" })},
	{"latency", "p99 2s", Critical, onMaster(func(s *Inspected) { s.Script.P99 = 2 * time.Second })},
	{"latency", "p99 400ms", Warning, onMaster(func(s *Inspected) { s.Script.P99 = 400 * time.Millisecond })},

	{"sentinels", "2 sentinels", Warning, func(f *Inspection, _ *Settings) { f.Sentinels = f.Sentinels[:2] }},
	{"sentinels", "cannot be asked", Warning, bySentinels(func(all []InspectedSentinel) {
		all[2] = InspectedSentinel{Addr: all[2].Addr, Away: "refused"}
	})},
	{"sentinel-rights", "may not run SENTINEL|MASTER at 10.0.0.2:26379", Critical, bySentinels(func(all []InspectedSentinel) {
		all[1] = InspectedSentinel{Addr: all[1].Addr, Master: all[1].Master, Denied: []string{"SENTINEL|MASTER"}}
	})},
	{"sentinel-quorum", "quorum 4", Critical, bySentinels(func(all []InspectedSentinel) { all[0].Quorum, all[1].Quorum, all[2].Quorum = 4, 4, 4 })},
	{"sentinel-quorum", "quorum 1", Warning, bySentinels(func(all []InspectedSentinel) { all[0].Quorum, all[1].Quorum, all[2].Quorum = 1, 1, 1 })},
	{"sentinel-quorum", "different", Warning, bySentinels(func(all []InspectedSentinel) { all[1].Quorum = 3 })},
	{"sentinel-quorum", "NOQUORUM", Critical, bySentinels(func(all []InspectedSentinel) { all[1].NoQuorum = "NOQUORUM 1 usable" })},
	{"sentinel-view", "different masters", Critical, bySentinels(func(all []InspectedSentinel) { all[1].Master = "10.0.0.2:6379" })},
	{"sentinel-view", "down", Warning, bySentinels(func(all []InspectedSentinel) { all[1].Down = true })},
	{"sentinel-view", "different replicas", Warning, bySentinels(func(all []InspectedSentinel) { all[1].Replicas = nil })},
	{"sentinel-view", "no replica", Warning, bySentinels(func(all []InspectedSentinel) {
		all[0].Replicas, all[1].Replicas, all[2].Replicas = nil, nil, nil
	})},
	{"sentinel-down-after", "60000", Warning, bySentinels(func(all []InspectedSentinel) { all[1].DownAfter = time.Minute })},

	{"cluster-slots", "7 of 16384", Critical, inCluster(func(c *InspectedCluster) { c.Uncovered = 7 })},
	{"cluster-slots", "cluster_state fail", Critical, inCluster(func(c *InspectedCluster) { c.States["10.0.0.3:6379"] = "fail" })},
	{"cluster-nodes", "down", Warning, inCluster(func(c *InspectedCluster) { c.Failing = []string{"10.0.0.3:6379"} })},
	{"cluster-nodes", "2 masters", Warning, inCluster(func(c *InspectedCluster) { c.Nodes = c.Nodes[:2] })},
	{"cluster-moving", "2 slots", Note, inCluster(func(c *InspectedCluster) { c.Moving = []int{1, 2} })},
	{"cluster-coverage", "yes", Note, func(f *Inspection, _ *Settings) {
		clustered(f)
		f.Servers[0].Config["cluster-require-full-coverage"] = "yes"
	}},
	{"cluster-migration", "yes", Note, func(f *Inspection, _ *Settings) {
		clustered(f)
		f.Servers[0].Config["cluster-allow-replica-migration"] = "yes"
	}},

	{"password", "no password, and protected-mode no", Warning, func(f *Inspection, _ *Settings) {
		f.LoggedIn = false
		f.Servers[0].Config["protected-mode"] = "no"
	}},
	{"password", "on this host", Note, func(f *Inspection, _ *Settings) {
		f.LoggedIn = false
		f.Servers[0].Loopback, f.Servers[1].Loopback = true, true
	}},
	{"tls", "no TLS", Warning, func(f *Inspection, _ *Settings) { f.TLS = false }},
	{"settings", "unknown command", Note, onMaster(func(s *Inspected) { s.Config, s.ConfigUnseen = nil, "ERR unknown command 'CONFIG'" })},
	{"maxclients", "9500 of 10000", Warning, onMaster(info("connected_clients", "9500"))},
	{"timeout", "timeout 60", Note, onMaster(setTo("timeout", "60"))},
	{"tcp-keepalive", "0", Note, onMaster(setTo("tcp-keepalive", "0"))},
	{"script-limit", "busy-reply-threshold 0", Note, onMaster(setTo("busy-reply-threshold", "0"))},
	{"script-limit", "lua-time-limit 0", Note, onMaster(func(s *Inspected) {
		delete(s.Config, "busy-reply-threshold")
		s.Config["lua-time-limit"] = "0"
	})},
	{"notifications", "KEA", Note, onMaster(setTo("notify-keyspace-events", "KEA"))},
	{"huge-pages", "disable-thp no", Note, onMaster(setTo("disable-thp", "no"))},
	{"database", "database 3", Note, func(f *Inspection, _ *Settings) { f.Database = 3 }},
}

// of are the findings of one check.
func of(id string, all []Finding) (found []Finding) {
	for _, f := range all {
		if f.ID == id {
			found = append(found, f)
		}
	}
	return found
}

func TestEachCheckFindsItsFactAndNothingInAHealthyRedis(t *testing.T) {
	for _, row := range symptoms {
		t.Run(row.id+" "+row.says, func(t *testing.T) {
			facts, with := patient()
			row.harm(facts, with)
			found := of(row.id, Examine(*facts, *with))
			if len(found) == 0 || found[0].Severity != row.worst || !strings.Contains(found[0].Found, row.says) {
				t.Fatalf("got %+v, want %v: %s", found, row.worst, row.says)
			}
			if first := found[0]; first.Severity > OK && (first.Risk == "" || first.Severity > Note && first.Fix == "") {
				t.Errorf("neither risk nor fix: %+v", first)
			}
		})
	}
	for _, kind := range []func(*Inspection){
		func(*Inspection) {},
		clustered,
		func(f *Inspection) { f.Mode, f.Sentinels = redisstore.ModeStandalone, nil },
	} {
		facts, with := patient()
		kind(facts)
		for _, f := range Examine(*facts, *with) {
			if f.Severity > OK && f.ID != "absent-replica" { // what a setting costs is said of each
				t.Errorf("%s of a healthy %s: %+v", f.ID, facts.Mode, f)
			}
		}
	}
}

func TestEachCheckHasASymptom(t *testing.T) {
	ill := map[string]bool{}
	for _, row := range symptoms {
		if row.worst > OK {
			ill[row.id] = true
		}
	}
	for _, check := range checks {
		if !ill[check.id] {
			t.Errorf("no symptom of %s", check.id)
		}
		delete(ill, check.id)
	}
	if len(ill) > 0 {
		t.Errorf("symptoms of no check: %v", slices.Collect(maps.Keys(ill)))
	}
}

func TestFindingsAreTheWorstFirstAndOneForAllServersAlike(t *testing.T) {
	facts, with := patient()
	for i := range facts.Servers {
		facts.Servers[i].Info["aof_enabled"] = "0"
		facts.Servers[i].Config["timeout"] = "60"
	}
	all := Examine(*facts, *with)
	if !slices.IsSortedFunc(all, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) }) || all[0].ID != "persistence" {
		t.Errorf("got %+v, want the worst first, and that is persistence", all)
	}
	found := of("timeout", all)
	expect.MustEqual(t, "the number of findings of timeout", len(found), 1)
	expect.Equal(t, "where timeout was found", found[0].Where, []string{"10.0.0.1:6379", "10.0.0.2:6379"})
	expect.Equal(t, "the worst of all", Worst(all), Critical)
	expect.Equal(t, "the worst of none", Worst(nil), OK)
}

// A server that tells nothing is not taken for fine.
func TestNothingIsFineBecauseNobodyCouldLook(t *testing.T) {
	mute := Inspected{
		Addr: "10.0.0.1:6379", Master: true, Info: map[string]string{}, Config: map[string]string{}, ConfigUnseen: "NOPERM", Untried: "i/o timeout",
		Clock: Clock{Err: "NOPERM"},
	}
	for _, f := range Examine(Inspection{Mode: redisstore.ModeStandalone, LoggedIn: true, TLS: true, Servers: []Inspected{mute}}, Settings{}) {
		if f.Severity == OK && !slices.Contains([]string{"role", "password", "tls", "scripts"}, f.ID) {
			t.Errorf("%s of a server that tells nothing is fine: %+v", f.ID, f)
		}
	}
}

// Fewer confirmations than replicas lose something in one case and not in another, and every one of
// them costs something: the finding names both.
func TestAckIsJudgedByWhatItLosesAndCosts(t *testing.T) {
	for _, row := range []struct {
		name string
		ack  int
		harm func(*Inspection)
		id   string
		says []string
	}{
		{"1 of 2 by Sentinel", 1, another, "ack", []string{"replaced while it lives", "A crash loses nothing as long as Sentinel reaches", "--ack 2, which hands nothing out while one of them is away"}},
		{"1 of 2 in a cluster", 1, func(f *Inspection) {
			clustered(f)
			another(f)
		}, "ack", []string{"replaced while it lives", "a cluster prefers"}},
		{"2 of 2", 2, another, "absent-replica", []string{"none for what was handed out", "While one is away nothing is handed out", "with --ack 3 nothing changes, with --ack 2 one may be away"}},
		{"1 of 1", 1, func(*Inspection) {}, "absent-replica", []string{"a third replica, and --ack 2"}},
		{"all of 2", redisstore.AckAll, another, "absent-replica",
			[]string{"--ack all needs every one of 2 replicas", "While one is away nothing is handed out"}},
		{"all", redisstore.AckAll, another, "ack", []string{"--ack all covers each of 2 replicas that can become master"}},
	} {
		facts, with := patient()
		row.harm(facts)
		with.Ack = row.ack
		found := of(row.id, Examine(*facts, *with))
		expect.MustEqual(t, row.name+": the number of findings of "+row.id, len(found), 1)
		expect.Contains(t, row.name+": the finding "+row.id, found[0].Found+" "+found[0].Risk+" "+found[0].Fix, row.says...)
	}
}

func TestSeveritiesAreWrittenAsWords(t *testing.T) {
	text, err := json.Marshal(Finding{ID: "x", Severity: Warning, Found: "y"})
	expect.Error(t, "writing a finding", err, nil)
	expect.Equal(t, "writing a finding", string(text), `{"id":"x","severity":"warning","found":"y"}`)
	var back Finding
	expect.Error(t, "reading a finding", json.Unmarshal(text, &back), nil)
	expect.Equal(t, "reading a finding: its severity", back.Severity, Warning)
	if json.Unmarshal([]byte(`{"severity":"bad"}`), &back) == nil {
		t.Error("bad is a severity")
	}
}

// The page lists what is looked at, no more and no less.
func TestThePageListsEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../docs/doctor.md")
	expect.MustEqual(t, "the error of reading the page", err, nil)
	var listed, known []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	for _, check := range checks {
		known = append(known, check.id)
	}
	for _, check := range serviceChecks {
		known = append(known, check.id)
	}
	expect.Equal(t, "the checks that the page lists", listed, known)
}
