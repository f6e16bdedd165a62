package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

func enoughReplicas(x *exam, s *Inspected) verdict {
	if !s.Master || s.Info["role"] == "" {
		return verdict{}
	}
	has, want := len(s.Replicas), x.acksOf(s)
	switch {
	case has < want:
		return critical(fmt.Sprintf("%d replicas, with --ack %s", has, x.ack(want)),
			"every write is an unknown outcome: it is done here, and never confirmed",
			fmt.Sprintf("start %d more, or --ack %d", want-has, has))
	case has == 0:
		return note("no replicas", "when this server is lost, so is what its disk kept; nothing takes over meanwhile",
			"a replica: REPLICAOF, and --ack 1")
	case x.Ack == 0:
		return warning(fmt.Sprintf("%d replicas, with --ack 0", has),
			"a failover loses writes that were confirmed: values of counters are handed out twice, tokens run again, locks have two "+
				"holders (worker ids wait in quarantine)",
			fmt.Sprintf("--ack %d", max(x.heirsOf(s), 1)))
	}
	return fine("%d replicas, --ack %s", has, x.ack(want))
}

// ackCoversHeirs asks whether each replica that can become master has every confirmed write.
func ackCoversHeirs(x *exam, s *Inspected) verdict {
	heirs := x.heirsOf(s)
	if !s.Master || x.Ack == 0 || heirs == 0 || len(s.Replicas) < x.acksOf(s) {
		return verdict{}
	}
	if x.acksOf(s) < heirs {
		return warning(fmt.Sprintf("--ack %d, and %d replicas can become master", x.Ack, heirs), x.uncovered(),
			fmt.Sprintf("--ack %d, which hands nothing out while one of them is away; or CONFIG SET replica-priority 0 at those that "+
				"are not to take over", len(s.Replicas)))
	}
	return fine("--ack %s covers each of %d replicas that can become master", x.ack(x.Ack), heirs)
}

// uncovered says in which case fewer confirmations than replicas lose something, and in which not.
func (x *exam) uncovered() string {
	risk := fmt.Sprintf("a master that is replaced while it lives (a parted network, a failover by hand, a process that stood still) "+
		"loses what it confirms meanwhile with %s that still follow it: "+
		"values of counters are handed out twice, tokens run again, locks have two holders. ", replicasOf(x.Ack))
	if x.Mode == redisstore.ModeCluster {
		return risk + "A crash loses nothing as long as the replica that is furthest is elected, which a cluster prefers"
	}
	return risk + "A crash loses nothing as long as Sentinel reaches a replica that has confirmed, since it takes the one that is furthest"
}

// absentReplica says what it costs that every replica has to confirm.
func absentReplica(x *exam, s *Inspected) verdict {
	has, want := len(s.Replicas), x.acksOf(s)
	switch {
	case !s.Master || want == 0 || has < want:
		return verdict{}
	case has > want:
		return fine("--ack %d of %d replicas: writes go on while %d of them are away", want, has, has-want)
	}
	buys := fmt.Sprintf("one replica more, which counts as well: with --ack %d nothing changes, with --ack %d one may be away", has+1, has)
	if has == 1 {
		buys = "a second and a third replica, and --ack 2: one may be away, and a crash loses nothing"
	}
	return note(fmt.Sprintf("--ack %s needs every one of %s", x.ack(want), replicasOf(has)),
		"none for what was handed out. While one is away nothing is handed out, after each failover until the old master is a replica "+
			"again: docs/operations.md has the seconds", buys+" (docs/operations.md, what each ack costs)")
}

// otherAddress looks for a replica that its master shows under an address which the cluster does
// not list: the address that is listed confirms nothing then.
func otherAddress(x *exam, s *Inspected) verdict {
	if !s.Master || x.Cluster == nil || x.Ack != redisstore.AckAll || len(s.Replicas) == 0 {
		return verdict{}
	}
	for _, replica := range s.Replicas {
		if !slices.ContainsFunc(x.Cluster.Nodes, func(node ClusterNode) bool { return node.Addr == replica.Addr }) {
			return critical("the replica "+replica.Addr+" has another address on the cluster's list, with --ack all",
				"no write is confirmed: the address on the list has to confirm, and its master never shows it",
				"replica-announce-ip and replica-announce-port at the replica, as cluster-announce-ip and cluster-announce-port")
		}
	}
	return fine("its replicas have the addresses that the cluster lists")
}

// acksOf is how many replicas of a master have to confirm each write: with --ack all those that are
// attached, or that a sentinel lists, away ones included.
func (x *exam) acksOf(master *Inspected) int {
	if x.Ack != redisstore.AckAll {
		return x.Ack
	}
	most := len(master.Replicas)
	for _, sentinel := range x.Sentinels {
		if sentinel.Master == master.Addr {
			most = max(most, len(sentinel.Replicas))
		}
	}
	return most
}

// ack is what stands after --ack for n replicas.
func (x *exam) ack(n int) string {
	if x.Ack == redisstore.AckAll {
		return "all"
	}
	return strconv.Itoa(n)
}

func replicasOf(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

func minReplicas(x *exam, s *Inspected) verdict {
	text, told := s.Config["min-replicas-to-write"]
	least, lag := number(text), s.Config["min-replicas-max-lag"]
	switch {
	case !told || !s.Master:
		return verdict{}
	case least > int64(len(s.Replicas)):
		return critical(fmt.Sprintf("min-replicas-to-write %d, and %d replicas", least, len(s.Replicas)),
			"every write is refused (NOREPLICAS)", fmt.Sprintf("start them, or CONFIG SET min-replicas-to-write %d", len(s.Replicas)))
	case len(s.Replicas) == 0:
		return verdict{}
	case least == 0:
		v := warning("min-replicas-to-write 0", "a master that is cut off goes on confirming what will be lost, for as long as "+
			"clients reach it", "CONFIG SET min-replicas-to-write 1, and the same in redis.conf")
		if x.Ack != 0 {
			v = v.at(Note)
			v.risk = "a master that is cut off goes on writing; with --ack no caller is told that those writes count, but they take up " +
				"time and names until it is found out"
		}
		return v
	case lag == "0":
		return warning("min-replicas-max-lag 0", "min-replicas-to-write does nothing without it", "CONFIG SET min-replicas-max-lag 10")
	}
	return fine("min-replicas-to-write %d within %s s", least, lag)
}

func waitReach(x *exam, s *Inspected) verdict {
	r := s.Reach
	switch {
	case r == nil, r.Err != "", r.Asked == 0:
		return verdict{}
	case r.WaitErr != "" && x.Ack != 0:
		return critical(fmt.Sprintf("WAIT is refused, with --ack %s: %s", x.ack(x.Ack), r.WaitErr),
			"every write is an unknown outcome: it is done here, and never confirmed",
			"--ack 0, if this Redis itself keeps copies before it confirms; else another Redis")
	case r.WaitErr != "":
		return note("WAIT is refused: "+r.WaitErr,
			"whether replicas have a write cannot be known: what a failover loses depends on this Redis alone", "")
	case r.Got < x.acksOf(s):
		return critical(fmt.Sprintf("a write reached %d replicas of %d in %s, with --ack %s", r.Got, r.Asked, short(r.Took), x.ack(x.Ack)),
			"writes are unknown outcomes: done here, and not confirmed in time",
			"look at the replicas that lag; raise --store-timeout if the network is slow")
	case r.Got < r.Asked:
		return warning(fmt.Sprintf("a write reached %d replicas of %d in %s", r.Got, r.Asked, short(r.Took)),
			"if one that has not confirmed becomes master, writes that were confirmed are lost", "look at the replicas that lag")
	}
	return fine("a write reached %d replicas of %d", r.Got, r.Asked)
}

// slowReplica is a lag that no healthy replica has: they confirm once a second.
const slowReplica = 5 * time.Second

func replicaLag(_ *exam, s *Inspected) verdict {
	for _, replica := range s.Replicas {
		risk := "it confirms nothing: with --ack writes wait for it, without it a failover to it loses what it lacks"
		switch {
		case replica.State != "online":
			return warning("replica "+replica.Addr+" is not in step yet: "+replica.State, risk,
				"wait for its synchronization; if it does not end, raise client-output-buffer-limit replica")
		case replica.Lag >= slowReplica:
			return warning(fmt.Sprintf("replica %s was silent for %v, and is %s behind", replica.Addr, replica.Lag, size(replica.Behind)),
				risk, "look at its log and at the link to it")
		}
	}
	if len(s.Replicas) == 0 {
		return verdict{}
	}
	return fine("its replicas are in step")
}

func replicaLink(_ *exam, s *Inspected) verdict {
	if s.Master || s.Info["master_link_status"] == "" {
		return verdict{}
	}
	if status := s.Info["master_link_status"]; status != "up" {
		return warning("a replica without its master (master_link_status "+status+")",
			"its copy grows old: with --ack fewer confirm, and a failover to it loses what it lacks",
			"look at its log; masterauth and the network between them are the usual causes")
	}
	return fine("a replica in contact with its master")
}

// replicaPriority looks for a replica that can take over.
func replicaPriority(x *exam) []verdict {
	heirs, replicas := x.heirs()
	switch {
	case len(replicas) == 0:
		return nil
	case len(heirs) == 0:
		return []verdict{warning("no replica can become master (replica-priority 0)",
			"there is no failover: when the master is lost, everything waits for people",
			"CONFIG SET replica-priority 100, at one of them")}
	case len(heirs) < len(replicas):
		return []verdict{note(fmt.Sprintf("%d of %d replicas cannot become master (replica-priority 0)", len(replicas)-len(heirs),
			len(replicas)),
			"none by itself: they are copies; but their confirmations count for --ack, so that --ack has to cover the others as well",
			fmt.Sprintf("--ack %d", len(replicas)))}
	}
	return []verdict{fine("%d replicas can become master", len(heirs))}
}

func replicaWrites(_ *exam, s *Inspected) verdict {
	if s.Master || s.Config["replica-read-only"] == "" {
		return verdict{}
	}
	if s.Config["replica-read-only"] == "no" {
		return warning("a replica that takes writes (replica-read-only no)", "what is written there is lost, and no master knows of it",
			"CONFIG SET replica-read-only yes, and the same in redis.conf")
	}
	return fine("a replica that takes no writes")
}

func replicaStale(_ *exam, s *Inspected) verdict {
	if s.Master || s.Config["replica-serve-stale-data"] != "yes" {
		return verdict{}
	}
	return note("replica-serve-stale-data yes", "none for coatcheck, which never reads from replicas; who looks at keys there may "+
		"see old ones", "CONFIG SET replica-serve-stale-data no")
}

// smallBacklog is Redis's default, which a busy service fills in seconds.
const smallBacklog = 1 << 20

func backlog(_ *exam, s *Inspected) verdict {
	bytes := number(s.Config["repl-backlog-size"])
	if !s.Master || len(s.Replicas) == 0 || bytes == 0 {
		return verdict{}
	}
	if bytes <= smallBacklog {
		return note("repl-backlog-size "+size(bytes),
			"a replica that was away for a moment has to copy everything anew, and confirms nothing until then: with --ack writes are "+
				"unknown outcomes",
			"CONFIG SET repl-backlog-size 67108864, and the same in redis.conf")
	}
	return fine("repl-backlog-size %s", size(bytes))
}

// syncDelay is about how long a master waits before it begins to copy everything to a replica.
func syncDelay(x *exam, s *Inspected) verdict {
	delay := number(s.Config["repl-diskless-sync-delay"])
	switch {
	case s.Config["repl-diskless-sync-delay"] == "" || s.Config["repl-diskless-sync"] == "no" || len(s.Replicas) == 0 && x.Ack == 0:
		return verdict{}
	case delay > 0 && x.Ack != 0:
		return note(fmt.Sprintf("repl-diskless-sync-delay %d", delay),
			fmt.Sprintf("a replica that comes back and has to copy everything confirms nothing for %d s before that begins: writes that "+
				"need it are unknown outcomes for as long", delay),
			"CONFIG SET repl-diskless-sync-delay 0, and the same in redis.conf")
	}
	return fine("repl-diskless-sync-delay %d", delay)
}

// short writes a duration with as many digits as are of use.
func short(d time.Duration) string {
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d.Abs() >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
