//go:build check

package chaos

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// downAfter is how long a master must be silent to be held for dead. On a busy machine one that is
// alive is silent for half a second now and then.
const downAfter = 1500 * time.Millisecond

// sentinels counts the failovers of a Sentinel set, wanted or not.
type sentinels struct {
	name     string // what they call the master
	patience time.Duration
	clients  []*redis.SentinelClient
	switched atomic.Int64
}

// watchSentinels has the set's sentinels wait for downAfter, and counts from now on how often they
// name another master.
func watchSentinels(t testing.TB, set *redistest.SentinelSet) *sentinels {
	t.Helper()
	address, err := url.Parse(set.URL())
	expect.NoError(t, "url.Parse", err)
	s := &sentinels{name: strings.Trim(address.Path, "/"), patience: downAfter}
	for at := range strings.SplitSeq(address.Host, ",") {
		client := redis.NewSentinelClient(&redis.Options{Addr: at})
		t.Cleanup(func() { _ = client.Close() })
		s.clients = append(s.clients, client)
	}
	s.wait(t, downAfter)
	heard := s.clients[0].Subscribe(context.Background(), "+switch-master")
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatalf("Receive: got error %v, want none", err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for range heard.Channel() {
			s.switched.Add(1)
		}
	})
	t.Cleanup(func() {
		_ = heard.Close()
		reader.Wait()
	})
	return s
}

// wait has the sentinels wait for so long before they hold a master for dead.
func (s *sentinels) wait(t testing.TB, patience time.Duration) {
	t.Helper()
	s.patience = patience
	for _, client := range s.clients {
		expect.NoError(t, "Set down-after-milliseconds", client.Set(t.Context(), s.name, "down-after-milliseconds", strconv.FormatInt(patience.Milliseconds(), 10)).Err())
	}
}

// settled looks whether every sentinel finds everything in order. It takes them a second or two to
// do so after a failover, and one that is asked for another failover before that may give it up
// half-way.
func (s *sentinels) settled(ctx context.Context) (complaint string) {
	for _, client := range s.clients {
		replicas, err := client.Replicas(ctx, s.name).Result()
		if err != nil || len(replicas) != 2 {
			return fmt.Sprintf("a sentinel knows %d replicas, %v", len(replicas), err)
		}
		for _, replica := range replicas {
			if replica["flags"] != "slave" || replica["role-reported"] != "slave" || replica["master-link-status"] != "ok" {
				return fmt.Sprintf("a sentinel finds a replica to be %s, as %s, with its link %s", replica["flags"], replica["role-reported"], replica["master-link-status"])
			}
		}
	}
	return ""
}
