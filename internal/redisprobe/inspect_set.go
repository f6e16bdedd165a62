package redisprobe

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/redisconn"
)

// sentinels asks the sentinels of the URL, and those that they know of, and returns the addresses
// of the data servers that they name.
func (i *inspector) sentinels(ctx context.Context) []string {
	queue := slices.Clone(i.target.Hosts)
	var servers []string
	for at := 0; at < len(queue); at++ {
		i.options.Progress("asking sentinel "+queue[at], at+1, len(queue))
		sentinel, others := i.sentinel(ctx, queue[at])
		i.found.Sentinels = append(i.found.Sentinels, sentinel)
		for _, other := range others {
			if !i.same(queue, other) {
				queue = append(queue, other)
			}
		}
		for _, addr := range append([]string{sentinel.Master}, sentinel.Replicas...) {
			if addr != "" && !i.same(servers, addr) {
				servers = append(servers, addr)
			}
		}
	}
	return servers
}

func (i *inspector) sentinel(ctx context.Context, addr string) (found doctor.InspectedSentinel, others []string) {
	found.Addr = addr
	options := i.sentinelOptions(addr)
	node := redis.NewSentinelClient(options)
	defer node.Close()
	if i.sentinelDenies(ctx, options, &found) {
		if named, err := node.GetMasterAddrByName(ctx, i.target.Master).Result(); err == nil {
			found.Master = net.JoinHostPort(named[0], named[1])
		}
		return found, nil
	}
	master, err := node.Master(ctx, i.target.Master).Result()
	if err != nil {
		found.Away = err.Error()
		return found, nil
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(master[name])
		return n
	}
	found.Master = net.JoinHostPort(master["ip"], master["port"])
	found.Down = strings.Contains(master["flags"], "_down")
	found.Quorum = number("quorum")
	found.DownAfter = time.Duration(number("down-after-milliseconds")) * time.Millisecond
	if err := node.CkQuorum(ctx, i.target.Master).Err(); err != nil {
		found.NoQuorum = err.Error()
	}
	replicas, err := node.Replicas(ctx, i.target.Master).Result()
	found.Replicas = addresses(replicas, err)
	list, err := node.Sentinels(ctx, i.target.Master).Result()
	return found, addresses(list, err)
}

func (i *inspector) sentinelOptions(addr string) *redis.Options {
	return redisconn.Safe(&redis.Options{
		Addr: addr, TLSConfig: i.target.Security, PoolSize: 1,
		Username: i.target.Query.Get("sentinel_username"), Password: i.target.Query.Get("sentinel_password"),
	}, i.options.Patience)
}

// sentinelDenies reports whether our user may not run all that we need at a sentinel.
func (i *inspector) sentinelDenies(ctx context.Context, options *redis.Options, found *doctor.InspectedSentinel) bool {
	node := redis.NewClient(options)
	defer node.Close()
	tried, err := try(ctx, node, sentinelCommands, i.target.Master, sentinelChannels[0])
	found.Denied = tried.denied
	return err == nil && len(found.Denied) > 0
}

// addresses are those of servers that a sentinel lists. One without a port was a client that copied
// the data.
func addresses(list []map[string]string, err error) (addrs []string) {
	if err != nil {
		return nil
	}
	for _, one := range list {
		if one["port"] == "0" {
			continue
		}
		addrs = append(addrs, net.JoinHostPort(one["ip"], one["port"]))
	}
	slices.Sort(addrs)
	return addrs
}

// slotTag is a hash tag of a slot that the node serves; "" if it serves none.
func slotTag(n doctor.ClusterNode) string {
	if len(n.Slots) == 0 {
		return ""
	}
	return redisconn.SlotTags()[n.Slots[0][0]]
}

// cluster asks for the cluster's nodes, and asks each of them for its view.
func (i *inspector) cluster(ctx context.Context) []doctor.ClusterNode {
	found := &doctor.InspectedCluster{States: map[string]string{}}
	var faults error
	for _, addr := range i.target.Hosts {
		i.options.Progress("asking "+addr+" for the cluster's nodes", 1, 1)
		nodes, err := i.nodesOf(ctx, addr)
		if err == nil {
			found.Nodes = nodes
			break
		}
		if denied(err) {
			return i.hosts()
		}
		faults = errors.Join(faults, err)
		i.found.Servers = append(i.found.Servers, doctor.Inspected{Addr: addr, Away: err.Error()})
	}
	if found.Nodes == nil {
		return nil
	}
	// they are asked again, as nodes
	i.found.Servers = slices.DeleteFunc(i.found.Servers, func(s doctor.Inspected) bool {
		return slices.ContainsFunc(found.Nodes, func(n doctor.ClusterNode) bool { return n.Addr == s.Addr })
	})
	look(found)
	for _, node := range found.Nodes {
		i.state(ctx, found, node.Addr)
	}
	i.found.Cluster = found
	return found.Nodes
}

// hosts are the nodes that the URL names, of which no more is known.
func (i *inspector) hosts() (nodes []doctor.ClusterNode) {
	for _, addr := range i.target.Hosts {
		nodes = append(nodes, doctor.ClusterNode{Addr: addr})
	}
	i.found.Servers = nil
	return nodes
}

// nodesOf asks a node for all that it knows.
func (i *inspector) nodesOf(ctx context.Context, addr string) (nodes []doctor.ClusterNode, err error) {
	node := i.dial(addr)
	defer node.Close()
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if known, ok := parseNode(line, addr); ok {
			nodes = append(nodes, known)
		}
	}
	slices.SortFunc(nodes, func(a, b doctor.ClusterNode) int { // masters first
		switch {
		case a.Master == b.Master:
			return cmp.Compare(a.Addr, b.Addr)
		case a.Master:
			return -1
		}
		return 1
	})
	return nodes, nil
}

// parseNode reads "id ip:port@bus[,host] flags master ping pong epoch link slot…". A node that does
// not know its own address is the one that was asked.
func parseNode(line, asked string) (doctor.ClusterNode, bool) {
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return doctor.ClusterNode{}, false
	}
	addr, _, _ := strings.Cut(fields[1], "@")
	if addr = redisconn.Address(addr); strings.HasPrefix(addr, ":") {
		addr = asked
	}
	node := doctor.ClusterNode{Addr: addr, Flags: strings.Split(fields[2], ",")}
	node.Master = slices.Contains(node.Flags, "master")
	for _, field := range fields[8:] {
		if from, to, ok := slotRange(field); ok {
			node.Slots = append(node.Slots, [2]int{from, to})
		}
	}
	return node, true
}

// slotRange reads 0-5460, or 7. What stands in brackets is on the move.
func slotRange(field string) (from, to int, ok bool) {
	first, last, isRange := strings.Cut(field, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	return from, to, errFrom == nil && errTo == nil && from >= 0 && from <= to && to < redisconn.Slots
}

// look sums up the list of nodes.
func look(c *doctor.InspectedCluster) {
	covered := make([]bool, redisconn.Slots)
	for _, node := range c.Nodes {
		bad := slices.ContainsFunc(node.Flags, func(flag string) bool { return strings.HasPrefix(flag, "fail") || flag == "noaddr" })
		if bad {
			c.Failing = append(c.Failing, node.Addr)
		}
		for _, r := range node.Slots {
			for n := r[0]; n <= r[1]; n++ {
				covered[n] = covered[n] || !slices.Contains(node.Flags, "fail")
			}
		}
	}
	for _, is := range covered {
		if !is {
			c.Uncovered++
		}
	}
}

// state asks one node for its view of the cluster, and for its moving slots, known to it alone.
func (i *inspector) state(ctx context.Context, found *doctor.InspectedCluster, addr string) {
	node := i.dial(addr)
	defer node.Close()
	text, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return // it is told as a server that is away
	}
	found.States[addr] = redisconn.ParseInfo(text)["cluster_state"]
	lines, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return
	}
	for line := range strings.Lines(lines) {
		if strings.Contains(line, "myself") {
			note(found, line)
		}
	}
}

// note keeps the slots that a node's own line has in brackets: [slot->-node] goes away,
// [slot-<-node] comes, and each may be there without the other.
func note(c *doctor.InspectedCluster, line string) {
	for field := range strings.FieldsSeq(line) {
		text, open := strings.CutPrefix(field, "[")
		text, _, _ = strings.Cut(text, "-")
		slot, err := strconv.Atoi(text)
		if open && err == nil && !slices.Contains(c.Moving, slot) {
			c.Moving = append(c.Moving, slot)
		}
	}
}
