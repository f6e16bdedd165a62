package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestSentinelsNameAMasterThatReplicates(t *testing.T) {
	t.Parallel()
	set := StartSentinel(t, 2)
	master := set.Master()
	if again := set.WaitForMaster(nil); again != master {
		t.Errorf("WaitForMaster(nil) = %s, Master() = %s", again.Addr(), master.Addr())
	}
	if replicas := set.Replicas(); len(replicas) != 2 || slices.Contains(replicas, master) {
		t.Errorf("%d replicas, or the master among them", len(replicas))
	}
	written := master.Client().Pipeline()
	written.Set(t.Context(), "k", "v", 0)
	acks := written.Do(t.Context(), "WAIT", 2, 2000)
	if _, err := written.Exec(t.Context()); err != nil {
		t.Fatalf("SET and WAIT: %v", err)
	}
	if n, err := acks.Int(); n != 2 || err != nil {
		t.Errorf("a write reached %d replicas, %v", n, err)
	}
}

func TestSentinelURLLeadsAClientToTheMaster(t *testing.T) {
	t.Parallel()
	set := StartSentinel(t, 1)
	rest, _ := strings.CutPrefix(set.URL(), "redis+sentinel://")
	addrs, name, _ := strings.Cut(rest, "/")
	if name != "coatcheck" || strings.Count(addrs, ",") != 2 {
		t.Fatalf("URL %q", set.URL())
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: strings.Split(addrs, ",")})
	defer client.Close()
	expect.NoError(t, "SET through the sentinels", client.Set(t.Context(), "k", "v", 0).Err())
	if got, err := set.Master().Client().Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("on the master: %q, %v", got, err)
	}
}

func TestSentinelsFailOverWhenTheMasterIsKilled(t *testing.T) {
	t.Parallel()
	set := StartSentinel(t, 2)
	old := set.Master()
	old.Kill()
	master := set.WaitForMaster(old)
	if master == old || set.Master() != master {
		t.Errorf("the master was %s, is %s by WaitForMaster and %s by Master", old.Addr(), master.Addr(), set.Master().Addr())
	}
	if err := master.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Errorf("write to the new master: %v", err)
	}
	if !slices.Contains(set.Replicas(), old) {
		t.Error("the killed master is not among the others")
	}

	// Back again, the sentinels make it a replica, and it gets what it missed.
	old.Restart()
	err := await(t, failoverLimit, func(ctx context.Context) error {
		got, err := old.Client().Get(ctx, "k").Result()
		if err != nil || got != "v" {
			return fmt.Errorf("the old master has %q, %w", got, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("the new master is named: %v", err)
	}
}

func TestPromotedMasterStaysMasterThroughAnEmptyRestart(t *testing.T) {
	t.Parallel()
	set := StartSentinel(t, 1)
	old := set.Master()
	old.Kill()
	master := set.WaitForMaster(old)
	master.RestartEmpty() // sooner than the sentinels notice
	role, err := master.Client().Do(t.Context(), "ROLE").Slice()
	if err != nil || len(role) == 0 || role[0] != "master" {
		t.Errorf("ROLE after the restart: %v, %v", role, err)
	}
}

func TestLenientSentinelsWaitForLonger(t *testing.T) {
	t.Parallel()
	set := StartSentinel(t, 1)
	for _, want := range []string{"1000", "2000", "4000", "8000", "8000"} {
		set.beLenient(t.Context())
		for _, sentinel := range set.sentinels {
			master, err := sentinel.client.Master(t.Context(), masterName).Result()
			if got := master["down-after-milliseconds"]; got != want || err != nil {
				t.Errorf("down-after-milliseconds of %s: got %s and error %v, want %s", sentinel.Addr(), got, err, want)
			}
		}
	}
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
}
