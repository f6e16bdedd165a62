package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// leastSentinels can lose one and still agree.
const leastSentinels = 3

func (x *exam) sentinels() (here []InspectedSentinel, gone []string) {
	for _, s := range x.Sentinels {
		if s.Away != "" {
			gone = append(gone, s.Addr+" ("+s.Away+")")
			continue
		}
		if len(s.Denied) == 0 {
			here = append(here, s)
		}
	}
	return here, gone
}

func sentinelCount(x *exam) []verdict {
	if x.Mode != redisstore.ModeSentinel {
		return nil
	}
	var all []verdict
	_, gone := x.sentinels()
	if len(gone) > 0 {
		all = append(all, warning("sentinels cannot be asked: "+strings.Join(gone, ", "),
			"fewer can agree on a failover: when the master is lost, everything may wait for people",
			"start them, or name others in --redis"))
	}
	if known := len(x.Sentinels); known < leastSentinels {
		return append(all, warning(fmt.Sprintf("%d sentinels", known),
			"with the loss of one a failover cannot be decided, or one decides alone and makes two masters",
			"run three, on three machines"))
	}
	return append(all, fine("%d sentinels answer", len(x.Sentinels)-len(gone)))
}

func sentinelRights(x *exam) []verdict {
	var addrs, denied []string
	for _, s := range x.Sentinels {
		if len(s.Denied) > 0 {
			addrs = append(addrs, s.Addr)
			denied = append(denied, s.Denied...)
		}
	}
	if len(denied) == 0 {
		return nil
	}
	slices.Sort(denied)
	denied = slices.Compact(denied)
	return []verdict{critical("the user may not run "+strings.Join(denied, ", ")+" at "+strings.Join(addrs, ", "),
		"the master is not found, or a failover is not heard of; the sentinels cannot be judged",
		"ACL SETUSER <user> &+switch-master &+replica-reconf-done +"+strings.ToLower(strings.Join(denied, " +"))+", at each sentinel")}
}

func sentinelQuorum(x *exam) []verdict {
	here, _ := x.sentinels()
	if len(here) == 0 {
		return nil
	}
	var all []verdict
	for _, s := range here {
		if s.NoQuorum != "" {
			all = append(all, critical(s.Addr+": "+s.NoQuorum, "there is no failover: when the master is lost, everything waits for people",
				"start the sentinels that are missing"))
		}
	}
	quorum, most := here[0].Quorum, len(x.Sentinels)
	alike := !slices.ContainsFunc(here, func(s InspectedSentinel) bool { return s.Quorum != quorum })
	switch {
	case !alike:
		all = append(all, warning("sentinels have different quorums", "which of them sees a failure decides what happens",
			"SENTINEL SET <master> quorum "+fmt.Sprint(most/2+1)+", at each"))
	case quorum > most:
		all = append(all, critical(fmt.Sprintf("quorum %d of %d sentinels", quorum, most),
			"there is no failover", fmt.Sprintf("SENTINEL SET <master> quorum %d, at each", most/2+1)))
	case quorum < 2 && most > 1:
		all = append(all, warning(fmt.Sprintf("quorum %d of %d sentinels", quorum, most),
			"one sentinel with a bad link sets off failovers, and each may lose writes",
			fmt.Sprintf("SENTINEL SET <master> quorum %d, at each", most/2+1)))
	case len(all) == 0:
		all = append(all, fine("quorum %d of %d sentinels", quorum, most))
	}
	return all
}

func sentinelView(x *exam) []verdict {
	here, _ := x.sentinels()
	if len(here) == 0 {
		return nil
	}
	first := here[0]
	for _, s := range here {
		switch {
		case s.Master != first.Master:
			return []verdict{critical(fmt.Sprintf("sentinels name different masters: %s says %s, %s says %s", first.Addr, first.Master,
				s.Addr, s.Master),
				"clients write to two: values, worker ids, tokens and locks are handed out twice",
				"wait for a failover under way; if it stays so: SENTINEL RESET <master>, at the one that is wrong")}
		case s.Down:
			return []verdict{warning(s.Addr+" holds the master to be down", "a failover is under way, or near",
				"look at the master and at the link to it")}
		case !slices.Equal(s.Replicas, first.Replicas):
			return []verdict{warning(fmt.Sprintf("sentinels know different replicas: %s %s, %s %s", first.Addr, list(first.Replicas),
				s.Addr, list(s.Replicas)),
				"the one that leads a failover may not know the replica that has everything",
				"wait a minute; if it stays so: SENTINEL RESET <master>, at each, one after the other, while every replica is attached")}
		}
	}
	if len(first.Replicas) == 0 {
		return []verdict{warning("the sentinels know no replica",
			"there is no server to take over: when the master is lost, everything waits for people",
			"REPLICAOF <host> <port>, at a second server")}
	}
	return []verdict{fine("the sentinels agree on the master and on %d replicas", len(first.Replicas))}
}

func list(addrs []string) string { return cmp.Or(strings.Join(addrs, " "), "none") }

func sentinelDownAfter(x *exam) []verdict {
	here, _ := x.sentinels()
	if len(here) == 0 {
		return nil
	}
	slowest := slices.MaxFunc(here, func(a, b InspectedSentinel) int { return cmp.Compare(a.DownAfter, b.DownAfter) })
	if slowest.DownAfter >= x.WorkerTTL {
		return []verdict{warning(fmt.Sprintf("down-after-milliseconds %d, and worker ids have a TTL of %v",
			slowest.DownAfter.Milliseconds(), x.WorkerTTL),
			"with each loss of the master all leases end before there is a new one: services stop stamping ids, and holders of locks stop",
			fmt.Sprintf("SENTINEL SET <master> down-after-milliseconds %d, at each; or longer leases",
				min(x.WorkerTTL/6, 5*time.Second).Milliseconds()))}
	}
	return []verdict{fine("a silent master is held to be down after %v", slowest.DownAfter)}
}

func clusterSlots(x *exam) []verdict {
	if x.Cluster == nil {
		return nil
	}
	var all []verdict
	if n := x.Cluster.Uncovered; n > 0 {
		all = append(all, critical(fmt.Sprintf("%d of 16384 slots have no master", n),
			"the names in them are refused, or with cluster-require-full-coverage all are",
			"redis-cli --cluster fix <host:port>; or start the node that has them"))
	}
	var failed []string
	for addr, state := range x.Cluster.States {
		if state != "ok" {
			failed = append(failed, addr)
		}
	}
	if slices.Sort(failed); len(failed) > 0 {
		all = append(all, critical("cluster_state fail, say "+strings.Join(failed, ", "),
			"they refuse what they are asked: nothing is issued, counted, leased or locked there", "redis-cli --cluster check <host:port>"))
	}
	if len(all) == 0 {
		all = append(all, fine("all 16384 slots are served, say %d nodes", len(x.Cluster.States)))
	}
	return all
}

func clusterNodes(x *exam) []verdict {
	if x.Cluster == nil {
		return nil
	}
	if len(x.Cluster.Failing) > 0 {
		return []verdict{warning("nodes that others hold to be down: "+strings.Join(x.Cluster.Failing, ", "),
			"one copy less of what they have, or none to take over", "start them, or CLUSTER FORGET <id>, at each node")}
	}
	masters := 0
	for _, node := range x.Cluster.Nodes {
		if node.Master && len(node.Slots) > 0 {
			masters++
		}
	}
	if masters < leastSentinels {
		return []verdict{warning(fmt.Sprintf("%d masters have slots", masters),
			"with the loss of one there is no majority of masters to choose another",
			"redis-cli --cluster add-node, and rebalance: at least three")}
	}
	return []verdict{fine("%d nodes, %d masters with slots", len(x.Cluster.Nodes), masters)}
}

func clusterMoving(x *exam) []verdict {
	if x.Cluster == nil || len(x.Cluster.Moving) == 0 {
		return nil
	}
	return []verdict{note(fmt.Sprintf("%d slots are on the move", len(x.Cluster.Moving)),
		"calls for names in them follow the slot, and some are refused meanwhile; if no slots are being moved now, a migration was left "+
			"half done", "redis-cli --cluster fix <host:port>, if none is moving them")}
}

func clusterCoverage(x *exam, s *Inspected) verdict {
	if x.Cluster == nil || s.Config["cluster-require-full-coverage"] == "" {
		return verdict{}
	}
	if s.Config["cluster-require-full-coverage"] == "yes" {
		return note("cluster-require-full-coverage yes",
			"when one shard is lost, the names of all shards are refused; none is handed out twice",
			"CONFIG SET cluster-require-full-coverage no, at each node: names of other shards then go on")
	}
	return fine("cluster-require-full-coverage no")
}

func clusterMigration(x *exam, s *Inspected) verdict {
	if x.Cluster == nil || x.Ack == 0 || s.Config["cluster-allow-replica-migration"] == "" {
		return verdict{}
	}
	if s.Config["cluster-allow-replica-migration"] == "yes" {
		return note(fmt.Sprintf("cluster-allow-replica-migration yes, with --ack %s", x.ack(x.Ack)),
			"a master with several replicas gives one to a master without: then it may have fewer than --ack, and its writes are "+
				"unknown outcomes",
			"CONFIG SET cluster-allow-replica-migration no, at each node; or one replica more than --ack for each master")
	}
	return fine("cluster-allow-replica-migration no")
}
