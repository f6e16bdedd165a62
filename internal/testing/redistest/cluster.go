package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const slotCount = 16384

// Cluster is a Redis Cluster with slots spread evenly. A node that is silent for 2 s has failed.
type Cluster struct {
	t       testing.TB
	masters int
	nodes   []*Server // the masters at the start, then their replicas
}

// StartCluster runs a cluster of that many masters, at least three, with that many replicas each,
// and ends it with the test. When it returns, every node finds the cluster to be fine and every
// replica is in sync.
func StartCluster(t testing.TB, masters, replicas int) *Cluster {
	t.Helper()
	if masters < 3 {
		t.Fatalf("redistest: StartCluster: a cluster has at least 3 masters, not %d", masters)
	}
	c := &Cluster{t: t, masters: masters}
	for range masters * (1 + replicas) {
		c.nodes = append(c.nodes, start(t, options{cluster: true}))
	}
	ctx, cancel := within(t, startLimit)
	defer cancel()
	must(t, "StartCluster", c.join(ctx))
	must(t, "StartCluster", await(t, startLimit, c.checkAcquainted))
	must(t, "StartCluster", c.assignReplicas(ctx))
	must(t, "StartCluster", await(t, startLimit, c.checkFine))
	return c
}

// join gives every master its slots and introduces all nodes to each other. Epochs are set first,
// since a node takes one only while it is alone, and equal ones would have to be sorted out later.
func (c *Cluster) join(ctx context.Context) error {
	for i, n := range c.nodes {
		if err := n.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("set the epoch of %s: %w", n.Addr(), err)
		}
	}
	for i, n := range c.nodes[:c.masters] {
		first, end := slotCount*i/c.masters, slotCount*(i+1)/c.masters
		if err := n.client.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return fmt.Errorf("give %s its slots: %w", n.Addr(), err)
		}
	}
	for i, n := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			err := n.client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.port.Number(), other.bus.Number()).Err()
			if err != nil {
				return fmt.Errorf("introduce %s to %s: %w", n.Addr(), other.Addr(), err)
			}
		}
	}
	return nil
}

// assignReplicas hands the nodes without slots to the masters in turn. All have to know each other.
func (c *Cluster) assignReplicas(ctx context.Context) error {
	for i, n := range c.nodes[c.masters:] {
		master := c.nodes[i%c.masters]
		id, err := master.client.ClusterMyID(ctx).Result()
		if err != nil {
			return fmt.Errorf("ask %s for its node id: %w", master.Addr(), err)
		}
		if err := n.client.ClusterReplicate(ctx, id).Err(); err != nil {
			return fmt.Errorf("make %s a replica of %s: %w", n.Addr(), master.Addr(), err)
		}
	}
	return nil
}

func (c *Cluster) checkAcquainted(ctx context.Context) error {
	var errs []error
	for _, n := range c.nodes {
		known, err := n.clusterNodes(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		connected := 0
		for _, k := range known {
			if k.connected && !k.has("handshake") {
				connected++
			}
		}
		if connected != len(c.nodes) {
			errs = append(errs, fmt.Errorf("%s is connected to %d of %d nodes", n.Addr(), connected, len(c.nodes)))
		}
	}
	return errors.Join(errs...)
}

// checkFine returns nil when every node finds the cluster fine and knows its replicas, all in sync.
func (c *Cluster) checkFine(ctx context.Context) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.checkClusterState(ctx), n.checkKnowsReplicas(ctx, len(c.nodes)-c.masters), n.checkShards())
	}
	for i, master := range c.nodes[:c.masters] {
		var replicas []*Server
		for j := c.masters + i; j < len(c.nodes); j += c.masters {
			replicas = append(replicas, c.nodes[j])
		}
		errs = append(errs, checkReplication(ctx, master, replicas))
	}
	return errors.Join(errs...)
}

func (s *Server) checkClusterState(ctx context.Context) error {
	info, err := s.client.ClusterInfo(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask %s about the cluster: %w", s.Addr(), err)
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("%s does not find the cluster to be ok", s.Addr())
	}
	return nil
}

func (s *Server) checkKnowsReplicas(ctx context.Context, want int) error {
	known, err := s.clusterNodes(ctx)
	if err != nil {
		return err
	}
	replicas := 0
	for _, k := range known {
		if k.has("slave") {
			replicas++
		}
	}
	if replicas != want {
		return fmt.Errorf("%s knows of %d of %d replicas", s.Addr(), replicas, want)
	}
	return nil
}

// checkShards looks into the file that a node reads when it starts again. Until the names of shards
// have gone round, a replica's there is not its master's, and Valkey 8.0.1 takes the file for
// broken.
func (s *Server) checkShards() error {
	text, err := os.ReadFile(s.nodesFile())
	if err != nil {
		return err
	}
	shards, masters := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 {
			_, shard, _ := strings.Cut(f[1], "shard-id=")
			shards[f[0]], masters[f[0]] = shard, f[3]
		}
	}
	for node, master := range masters {
		if want, known := shards[master]; known && shards[node] != want {
			return fmt.Errorf("%s has %s in the shard %q, and its master in %q", s.Addr(), node, shards[node], want)
		}
	}
	return nil
}

// URL returns redis+cluster://a,b,c with the addresses of all nodes.
func (c *Cluster) URL() string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Nodes returns all nodes of the cluster, running or not: the first masters, then the replicas.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// MasterOf returns the node that serves key's slot now. While none does, since no replica has taken
// over yet, it waits; it fails the test when that takes minutes.
func (c *Cluster) MasterOf(key string) *Server {
	c.t.Helper()
	var master *Server
	err := await(c.t, failoverLimit, func(ctx context.Context) (err error) {
		master, err = c.findMaster(ctx, key)
		return err
	})
	must(c.t, "MasterOf("+strconv.Quote(key)+")", err)
	return master
}

// findMaster asks every node that can answer whether the slot is its own. If two say so, which
// happens when a deposed master has not heard of it yet, the greater epoch is right.
func (c *Cluster) findMaster(ctx context.Context, key string) (*Server, error) {
	var master *Server
	var epoch int64
	var errs []error
	for _, n := range c.nodes {
		if !n.canAnswer() {
			continue
		}
		self, slot, err := n.clusterSelf(ctx, key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if self.has("master") && self.serves(slot) && (master == nil || self.epoch > epoch) {
			master, epoch = n, self.epoch
		}
	}
	if master == nil {
		return nil, errors.Join(append(errs, errors.New("no node serves the key's slot"))...)
	}
	return master, nil
}

// canAnswer reports whether the server is neither down nor paused.
func (s *Server) canAnswer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Running() && !s.paused
}

// clusterSelf returns how the node describes itself, and the slot of key.
func (s *Server) clusterSelf(ctx context.Context, key string) (clusterNode, int, error) {
	known, err := s.clusterNodes(ctx)
	if err != nil {
		return clusterNode{}, 0, err
	}
	slot, err := s.client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return clusterNode{}, 0, fmt.Errorf("ask %s for a key's slot: %w", s.Addr(), err)
	}
	for _, k := range known {
		if k.has("myself") {
			return k, int(slot), nil
		}
	}
	return clusterNode{}, 0, fmt.Errorf("%s does not name itself among the cluster's nodes", s.Addr())
}

// clusterNodes returns the nodes that the server knows, itself among them.
func (s *Server) clusterNodes(ctx context.Context) ([]clusterNode, error) {
	text, err := s.client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask %s for the cluster's nodes: %w", s.Addr(), err)
	}
	var nodes []clusterNode
	for line := range strings.Lines(text) {
		node, err := parseClusterNode(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Addr(), err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// clusterNode is one line of CLUSTER NODES.
type clusterNode struct {
	flags     []string
	epoch     int64
	connected bool
	slots     [][2]int // first and last of each range
}

// parseClusterNode reads "id address flags master ping pong epoch link-state slot…". Slots that are
// on the move stand in brackets and are listed with their owner besides, so they are passed over.
func parseClusterNode(line string) (clusterNode, error) {
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return clusterNode{}, fmt.Errorf("no node of a cluster: %q", line)
	}
	epoch, err := strconv.ParseInt(fields[6], 10, 64)
	if err != nil {
		return clusterNode{}, fmt.Errorf("epoch of a cluster's node: %w", err)
	}
	node := clusterNode{flags: strings.Split(fields[2], ","), epoch: epoch, connected: fields[7] == "connected"}
	for _, field := range fields[8:] {
		if strings.HasPrefix(field, "[") {
			continue
		}
		first, last, isRange := strings.Cut(field, "-")
		if !isRange {
			last = first
		}
		lo, errLo := strconv.Atoi(first)
		hi, errHi := strconv.Atoi(last)
		if err := errors.Join(errLo, errHi); err != nil {
			return clusterNode{}, fmt.Errorf("slots of a cluster's node: %w", err)
		}
		node.slots = append(node.slots, [2]int{lo, hi})
	}
	return node, nil
}

func (n clusterNode) has(flag string) bool { return slices.Contains(n.flags, flag) }

func (n clusterNode) serves(slot int) bool {
	return slices.ContainsFunc(n.slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}
