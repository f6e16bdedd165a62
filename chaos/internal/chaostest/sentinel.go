package chaostest

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

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Sentinels count the failovers of a Sentinel set, wanted or not.
type Sentinels struct {
	Patience time.Duration // for which a master is silent that is held for dead

	name     string // what they call the master
	clients  []*redis.SentinelClient
	switched atomic.Int64
}

// longestPatience is that of sentinels which have replaced a master that is alive again and again.
const longestPatience = 8 * time.Second

// WatchSentinels has a set's sentinels wait for so long before they hold a master for dead, and
// counts from now on how often they name another one.
func WatchSentinels(t testing.TB, set *redistest.SentinelSet, patience time.Duration) *Sentinels {
	t.Helper()
	address, err := url.Parse(set.URL())
	if err != nil {
		t.Fatalf("the URL of a set: %v", err)
	}
	s := &Sentinels{name: strings.Trim(address.Path, "/")}
	for at := range strings.SplitSeq(address.Host, ",") {
		client := redis.NewSentinelClient(&redis.Options{Addr: at})
		t.Cleanup(func() { _ = client.Close() })
		s.clients = append(s.clients, client)
	}
	s.wait(t, patience)
	heard := s.clients[0].Subscribe(context.Background(), "+switch-master")
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatalf("subscribing at a sentinel: got error %v, want none", err)
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

// Switched is how often they have named another master. On nil it is 0.
func (s *Sentinels) Switched() int64 {
	if s == nil {
		return 0
	}
	return s.switched.Load()
}

// Hesitate has the sentinels wait for twice as long: they have replaced a master that is alive.
func (s *Sentinels) Hesitate(t testing.TB) {
	t.Helper()
	s.wait(t, min(2*s.Patience, longestPatience))
}

func (s *Sentinels) wait(t testing.TB, patience time.Duration) {
	t.Helper()
	s.Patience = patience
	for _, client := range s.clients {
		if err := client.Set(t.Context(), s.name, "down-after-milliseconds", strconv.FormatInt(patience.Milliseconds(), 10)).Err(); err != nil {
			t.Fatalf("down-after-milliseconds of a sentinel: got error %v, want none", err)
		}
	}
}

// Failover asks a sentinel to replace a master that works.
func (s *Sentinels) Failover(ctx context.Context) error {
	return s.clients[0].Failover(ctx, s.name).Err()
}

// Settled looks whether every sentinel finds everything in order. It takes them a second or two to
// do so after a failover, and one that is asked for another failover before that may give it up
// half-way.
func (s *Sentinels) Settled(ctx context.Context) (complaint string) {
	for _, client := range s.clients {
		replicas, err := client.Replicas(ctx, s.name).Result()
		if err != nil || len(replicas) != 2 {
			return fmt.Sprintf("a sentinel knows %d replicas, %v", len(replicas), err)
		}
		for _, replica := range replicas {
			if replica["flags"] != "slave" || replica["role-reported"] != "slave" || replica["master-link-status"] != "ok" {
				return fmt.Sprintf("a sentinel finds a replica to be %s, as %s, with its link %s",
					replica["flags"], replica["role-reported"], replica["master-link-status"])
			}
		}
	}
	return ""
}
