package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/redisstore"
)

func away(x *exam, s *Inspected) verdict {
	if s.Away == "" {
		return verdict{}
	}
	return warning("cannot be asked: "+s.Away,
		"nothing is known of it; if it is down there is one copy less of every token, lease, counter and lock, and no server to take over",
		"start it, or make it reachable from here under this address (replica-announce-ip, cluster-announce-ip)")
}

// role looks at who is master: the one of a URL, one of a Sentinel set.
func role(x *exam) []verdict {
	var masters, asked []string
	for _, s := range x.Servers {
		if s.Away != "" {
			continue
		}
		if asked = append(asked, s.Addr); s.Master {
			masters = append(masters, s.Addr)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	switch first := x.Servers[0]; {
	case x.Mode == redisstore.ModeStandalone && first.Info["cluster_enabled"] == "1":
		return []verdict{critical("the URL names one node of a cluster", "every name of another node is refused",
			"--redis redis+cluster://"+first.Addr)}
	case x.Mode == redisstore.ModeStandalone && !first.Master:
		return []verdict{critical("the URL names a replica", "it takes no writes: nothing is issued, counted, leased or locked",
			"--redis redis://"+first.Info["master_host"]+":"+first.Info["master_port"])}
	case x.Mode == redisstore.ModeSentinel && len(masters) == 0:
		return []verdict{critical("no server of the set says that it is master",
			"nothing is issued, counted, leased or locked until a failover has ended", "SENTINEL FAILOVER <master>")}
	case x.Mode == redisstore.ModeSentinel && len(masters) > 1:
		return []verdict{critical("several servers say that they are master: "+strings.Join(masters, ", "),
			"what the wrong one confirms is lost: counters' values and worker ids are handed out twice, tokens run again, locks have "+
				"two holders",
			"CONFIG SET min-replicas-to-write 1, on all of them; and REPLICAOF <host> <port> on the wrong one")}
	}
	return []verdict{fine("master: %s", strings.Join(masters, ", "))}
}

// version accepts 6.2 and later, and Valkey, which also calls itself Redis 7.2.4.
func version(_ *exam, s *Inspected) verdict {
	if valkey := s.Info["valkey_version"]; valkey != "" {
		return fine("Valkey %s", valkey)
	}
	text := s.Info["redis_version"]
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, errMajor := strconv.Atoi(major)
	n, errMinor := strconv.Atoi(minor)
	switch {
	case errMajor != nil || errMinor != nil:
		return note("the version cannot be seen", "a Redis before 6.2 runs the scripts otherwise", "")
	case m < 6 || m == 6 && n < 2:
		return critical("Redis "+text, "before 6.2 commands and forms of commands are missing: scripts fail in the middle, with tokens, "+
			"leases and counters half written",
			"run Redis 6.2 or later, or Valkey")
	}
	return fine("Redis %s", text)
}

// keyDB is about KeyDB, which alone shows mvcc_depth.
func keyDB(x *exam, s *Inspected) verdict {
	switch {
	case s.Info["role"] == "active-replica":
		return critical("an active replica (role active-replica)",
			"two servers take writes, and the newest write wins: values, worker ids and locks are handed out twice",
			"one master: active-replica no, multi-master no, in keydb.conf; or Redis or Valkey")
	case s.Info["mvcc_depth"] == "":
		return verdict{}
	case x.Ack != 0:
		return critical("KeyDB, with --ack "+x.ack(x.Ack),
			"KeyDB answers nothing that follows WAIT on a connection: no write is confirmed, and coatcheck refuses to try",
			"--ack 0, with which every failover is a possible loss; or Redis or Valkey")
	}
	return warning("KeyDB", "replicas cannot confirm writes: every failover is a possible loss", "Redis or Valkey, with --ack all")
}

func commands(x *exam, s *Inspected) verdict {
	missing := x.needed(s.Missing)
	switch {
	case s.Untried != "":
		return note("what the user may do cannot be seen: "+s.Untried,
			"a command or a key that is forbidden shows in the first call that needs it", "")
	case len(missing) > 0:
		return critical("commands are missing, or renamed: "+strings.Join(missing, ", "),
			"scripts that need them fail: tokens, leases, counters or locks, by what is missing",
			"in redis.conf: no line rename-command for "+strings.Join(missing, ", ")+"; then restart")
	case slices.Contains(s.Missing, "PUBLISH") || slices.Contains(s.Missing, "SUBSCRIBE"):
		return warning("no PUBLISH and SUBSCRIBE", "none for a promise; those that wait for a lock or an answer poll, and hear of it later",
			"a server that has them")
	case len(s.Missing) > 0:
		return note("commands are missing that these settings do not need: "+strings.Join(s.Missing, ", "),
			"without WAIT no --ack can be had; without INFO see incarnation", "")
	}
	return fine("all commands are there")
}

func rights(x *exam, s *Inspected) verdict {
	denied := s.Denied
	if x.Ack == 0 {
		denied = slices.DeleteFunc(slices.Clone(denied), func(name string) bool { return name == "WAIT" })
	}
	found := "the user may not run " + strings.Join(denied, ", ") + " on coatcheck's keys and channels"
	fix := "ACL SETUSER <user> ~<prefix>* &<prefix>* +" + strings.ToLower(strings.Join(denied, " +")) + ", at each server"
	switch {
	case s.Untried != "":
		return verdict{}
	case len(x.needed(denied)) > 0:
		return critical(found, "calls that need them are refused: tokens, leases, counters or locks, by what is forbidden", fix)
	case len(denied) > 0:
		return warning(found, "without PUBLISH and SUBSCRIBE those that wait for a lock or an answer poll, and hear of it later; "+
			"without INFO see incarnation", fix)
	}
	return fine("the user may do all that is needed")
}

// needed are those of commands without which nothing works. The check incarnation is about INFO,
// but where it has to list replicas.
func (x *exam) needed(commands []string) []string {
	return slices.DeleteFunc(slices.Clone(commands), func(name string) bool {
		return name == "WAIT" && x.Ack == 0 || name == "INFO" && x.Ack != redisstore.AckAll ||
			slices.Contains([]string{"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"}, name)
	})
}

func scriptsRun(_ *exam, s *Inspected) verdict {
	if s.ScriptFails == "" {
		return fine("scripts run")
	}
	return critical("a script of one line fails: "+s.ScriptFails,
		"nothing works: every decision over tokens, leases, counters and locks is a script",
		"ACL SETUSER <user> +eval +evalsha +time; where Lua is off, another Redis")
}

// incarnation judges whether a loss would be noticed.
func incarnation(x *exam, s *Inspected) verdict {
	switch {
	case s.ScriptFails != "" || !s.Master || s.Incarnation+s.NoIncarnation == "":
		return verdict{}
	case x.Restarts == redisstore.RestartsTrust:
		return fine("--restarts trust: no script asks for the incarnation")
	case s.NoIncarnation != "":
		return critical("a restart or a failover cannot be told: "+s.NoIncarnation,
			"counters, segments and worker ids are refused (store-unsuitable): they could be handed out twice. Tokens and locks work",
			"--restarts trust, if this Redis never loses a write that it has confirmed; else another Redis")
	}
	return fine("a restart and a failover can be told")
}

// formats is about records that a newer version has written.
func formats(_ *exam, s *Inspected) verdict {
	if len(s.Newer) == 0 {
		return verdict{}
	}
	return critical("a newer version of coatcheck has written "+strings.Join(s.Newer, ", "),
		"this version, and each that does not know that format, refuses such records (store-newer)",
		"install at least the version after the colon wherever coatcheck runs")
}

// writes is about a write that was refused.
func writes(_ *exam, s *Inspected) verdict {
	switch {
	case s.Reach == nil:
		return verdict{}
	case s.Reach.Err == "":
		return fine("takes writes")
	}
	fix := "the answer says what is wrong"
	for code, line := range map[string]string{
		"NOREPLICAS":  "CONFIG SET min-replicas-to-write, to no more than there are replicas; or start them",
		"OOM":         "CONFIG SET maxmemory, to more",
		"MISCONF":     "make room on the disk, or mend it: the log of Redis says why it could not write",
		"READONLY":    "name the master in --redis",
		"NOPERM":      "ACL SETUSER <user> ~<prefix>* +set +wait",
		"CLUSTERDOWN": "mend the cluster: redis-cli --cluster check, then fix",
	} {
		if strings.HasPrefix(s.Reach.Err, code) {
			fix = line
		}
	}
	return critical("a write was refused: "+s.Reach.Err, "nothing is issued, counted, leased or locked", fix)
}

// heirs are the replicas that may become master.
func (x *exam) heirs() (heirs, replicas []string) {
	for _, s := range x.Servers {
		if s.Away != "" || s.Master {
			continue
		}
		replicas = append(replicas, s.Addr)
		if cmp.Or(s.Config["replica-priority"], s.Info["slave_priority"]) != "0" && s.Config["cluster-replica-no-failover"] != "yes" {
			heirs = append(heirs, s.Addr)
		}
	}
	return heirs, replicas
}

// heirsOf are the replicas of one master that may take its place: those that it lists, less those
// that are known not to be able to.
func (x *exam) heirsOf(master *Inspected) int {
	heirs, replicas := x.heirs()
	count := len(master.Replicas)
	for _, replica := range master.Replicas {
		if slices.Contains(replicas, replica.Addr) && !slices.Contains(heirs, replica.Addr) {
			count--
		}
	}
	return count
}

// number reads one of INFO's or CONFIG's numbers; 0 if it is none.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", bytes)
}
