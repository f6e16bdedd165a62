package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestClusterRoutesKeysToTheNodesThatOwnThem(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 0)
	addrs, _ := strings.CutPrefix(c.URL(), "redis+cluster://")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(addrs, ",")})
	defer client.Close()

	owners := map[*Server]bool{}
	for i := range 20 {
		key := fmt.Sprintf("key-%d", i)
		if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatalf("SET %s through the cluster: %v", key, err)
		}
		owner := c.MasterOf(key)
		owners[owner] = true
		for _, n := range c.Nodes() {
			err := n.Client().Get(t.Context(), key).Err()
			if n == owner && err != nil {
				t.Errorf("GET %s from %s, its master: %v", key, n.Addr(), err)
			}
			if n != owner && (err == nil || !strings.HasPrefix(err.Error(), "MOVED ") || !strings.HasSuffix(err.Error(), owner.Addr())) {
				t.Errorf("GET %s from %s: %v; want MOVED to %s", key, n.Addr(), err, owner.Addr())
			}
		}
	}
	if len(owners) != 3 {
		t.Errorf("20 keys live on %d of 3 masters", len(owners))
	}
	if c.MasterOf("{tag}a") != c.MasterOf("{tag}b") {
		t.Error("two keys with one hash tag have two masters")
	}
}

func TestMasterOfAgreesWithTheSlotsOfTheCluster(t *testing.T) {
	t.Parallel()
	// slots do not divide evenly by every count; every one has to be served
	c := StartCluster(t, 4, 0)
	slots, err := c.Nodes()[3].Client().ClusterSlots(t.Context()).Result()
	expect.NoError(t, "CLUSTER SLOTS", err)
	served := 0
	for _, r := range slots {
		served += r.End - r.Start + 1
	}
	if served != slotCount {
		t.Errorf("%d slots are served", served)
	}
	for _, key := range []string{"a", "b", "c", "foo", "{x}y", ""} {
		slot, err := c.Nodes()[0].Client().ClusterKeySlot(t.Context(), key).Result()
		expect.NoError(t, "CLUSTER KEYSLOT", err)
		for _, r := range slots {
			if r.Start <= int(slot) && int(slot) <= r.End && r.Nodes[0].Addr != c.MasterOf(key).Addr() {
				t.Errorf("slot %d of %q belongs to %s, MasterOf says %s", slot, key, r.Nodes[0].Addr, c.MasterOf(key).Addr())
			}
		}
	}
}

func TestMasterOfFollowsAFailover(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	if len(c.Nodes()) != 6 {
		t.Fatalf("%d nodes", len(c.Nodes()))
	}
	old := c.MasterOf("k")
	old.Kill()
	master := c.MasterOf("k")
	if master == old {
		t.Fatalf("the dead node %s is still the master", old.Addr())
	}
	old.Restart() // it may still think that it is the master
	if again := c.MasterOf("k"); again != master {
		t.Errorf("after the old master's return %s is the master, not %s", again.Addr(), master.Addr())
	}
}

func TestClusterNodeStaysInTheClusterThroughAnEmptyRestart(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 0)
	master := c.MasterOf("k")
	expect.NoError(t, "SET of k", master.Client().Set(t.Context(), "k", "v", 0).Err())
	master.RestartEmpty()
	if again := c.MasterOf("k"); again != master {
		t.Errorf("%s is the master, not %s", again.Addr(), master.Addr())
	}
	if n, err := master.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

func TestClusterOfTwoMastersIsRefused(t *testing.T) {
	t.Parallel()
	failure := failureOf(t, func(t testing.TB) { StartCluster(t, 2, 0) })
	if !strings.Contains(failure, "at least 3 masters") {
		t.Errorf("the failure: %s", failure)
	}
}

func TestClusterNodeLinesAreRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		line         string
		serves, not  int
		flag         string
		epoch        int64
		disconnected bool
	}{
		"range and single slot": {line: "id 127.0.0.1:1@2 myself,master - 0 0 7 connected 0-5 9\n", serves: 9, not: 6, flag: "myself", epoch: 7},
		"moving slot":           {line: "id 127.0.0.1:1@2 master - 0 0 7 connected 3 [3->-other]\n", serves: 3, not: 4, flag: "master", epoch: 7},
		"lost link":             {line: "id 127.0.0.1:1@2 master,fail - 0 0 1 disconnected 1-2\n", serves: 2, not: 3, flag: "fail", epoch: 1, disconnected: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := parseClusterNode(tc.line)
			expect.NoError(t, "parseClusterNode", err)
			if !n.serves(tc.serves) || n.serves(tc.not) || !n.has(tc.flag) || n.epoch != tc.epoch || n.connected == tc.disconnected {
				t.Errorf("%q is read as %+v", tc.line, n)
			}
		})
	}
	for _, line := range []string{"", "id addr master - 0 0 x connected", "id addr master - 0 0 1 connected a-b"} {
		if n, err := parseClusterNode(line); err == nil {
			t.Errorf("%q is read as %+v", line, n)
		}
	}
}
