package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masterName    = "coatcheck" // what the sentinels call the master
	sentinelCount = 3
	quorum        = 2
	// how long there may be no master until the sentinels become more lenient: many times what a
	// failover takes.
	lenientAfter = 20 * time.Second
)

// SentinelSet is one master, its replicas, and three sentinels that watch them under the name
// "coatcheck": a quorum of two, 500 ms of silence before a sentinel holds a server to be down, and
// a failover timeout of 3 s.
type SentinelSet struct {
	t         testing.TB
	servers   []*Server // the data, first the one that was master at the start
	sentinels []sentinel
}

// sentinel is a server that runs as one, with a client that speaks its commands.
type sentinel struct {
	*Server
	client *redis.SentinelClient
}

// StartSentinel runs a master with that many replicas and three sentinels, and ends them with the
// test. When it returns, the replicas are in sync and all sentinels know each other.
func StartSentinel(t testing.TB, replicas int) *SentinelSet {
	t.Helper()
	return StartSentinelOn(t, make([]Host, 1+replicas), make([]Host, sentinelCount))
}

// StartSentinelOn is the same with a server on each of some hosts, of which the first is master,
// and with the three sentinels on others.
func StartSentinelOn(t testing.TB, hosts, watchers []Host) *SentinelSet {
	t.Helper()
	set, replicas := &SentinelSet{t: t}, len(hosts)-1
	master := start(t, options{at: hosts[0]})
	set.servers = append(set.servers, master)
	for _, host := range hosts[1:] {
		replica := start(t, options{at: host, config: []string{fmt.Sprintf("replicaof %s %d", master.host(), master.port.Number())}})
		set.servers = append(set.servers, replica)
	}
	err := await(t, startLimit, func(ctx context.Context) error {
		if err := checkReplication(ctx, master, set.servers[1:]); err != nil {
			return err
		}
		return checkConfirmation(ctx, master, replicas)
	})
	must(t, "StartSentinel", err)
	for _, host := range watchers {
		set.sentinels = append(set.sentinels, startSentinelFor(t, master, host))
	}
	err = await(t, startLimit, func(ctx context.Context) error {
		var errs []error
		for _, s := range set.sentinels {
			errs = append(errs, s.checkKnows(ctx, replicas))
		}
		return errors.Join(errs...)
	})
	must(t, "StartSentinel", err)
	return set
}

func startSentinelFor(t testing.TB, master *Server, host Host) sentinel {
	t.Helper()
	s := start(t, options{sentinel: true, at: host, config: []string{
		fmt.Sprintf("sentinel monitor %s %s %d %d", masterName, master.host(), master.port.Number(), quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s 500", masterName),
		fmt.Sprintf("sentinel failover-timeout %s 3000", masterName),
	}})
	client := redis.NewSentinelClient(s.clientOptions())
	t.Cleanup(func() { _ = client.Close() })
	s.hurry()
	return sentinel{Server: s, client: client}
}

// hurry makes the sentinel greet the others every 200 ms instead of 2 s, which is how they find
// each other and hear of a failover, and look at its servers every second instead of ten, which is
// how a master that comes back is noticed and made a replica. They ask each server every 300 ms:
// with the usual second a server that they have only just heard of is asked first when its 500 ms
// of silence are over already, and one failover may bring the next; asked much more often than
// this, they would find no replica fit. What decides about a failover stays as it is. A server that
// does not allow it only takes longer.
func (s *Server) hurry() {
	ctx, cancel := within(s.t, queryLimit)
	defer cancel()
	_ = s.client.Do(ctx, "SENTINEL", "DEBUG", "publish-period", "200", "info-period", "1000", "ping-period", "300").Err()
}

// checkKnows returns nil when the sentinel knows the other sentinels and that many replicas, sees
// them all in good health, and would reach the quorum.
func (s sentinel) checkKnows(ctx context.Context, replicas int) error {
	master, err := s.client.Master(ctx, masterName).Result()
	if err != nil {
		return fmt.Errorf("ask sentinel %s for the master: %w", s.Addr(), err)
	}
	if master["flags"] != "master" || master["num-slaves"] != strconv.Itoa(replicas) ||
		master["num-other-sentinels"] != strconv.Itoa(sentinelCount-1) {
		return fmt.Errorf("sentinel %s sees a %s with %s of %d replicas and %s of %d other sentinels", s.Addr(),
			master["flags"], master["num-slaves"], replicas, master["num-other-sentinels"], sentinelCount-1)
	}
	slaves, err := s.client.Replicas(ctx, masterName).Result()
	if err != nil {
		return fmt.Errorf("ask sentinel %s for the replicas: %w", s.Addr(), err)
	}
	for _, slave := range slaves {
		if slave["flags"] != "slave" || slave["master-link-status"] != "ok" || slave["runid"] == "" {
			return fmt.Errorf("sentinel %s sees replica %s as %s, its link %s", s.Addr(), slave["name"],
				slave["flags"], slave["master-link-status"])
		}
	}
	if err := s.client.CkQuorum(ctx, masterName).Err(); err != nil {
		return fmt.Errorf("sentinel %s: %w", s.Addr(), err)
	}
	return nil
}

// URL returns redis+sentinel://a,b,c/coatcheck with the addresses of the three sentinels.
func (s *SentinelSet) URL() string {
	var addrs []string
	for _, sentinel := range s.sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + masterName
}

// Sentinels returns the three sentinels.
func (s *SentinelSet) Sentinels() (servers []*Server) {
	for _, sentinel := range s.sentinels {
		servers = append(servers, sentinel.Server)
	}
	return servers
}

// Master returns the server that the sentinels call master now, running or not. While they
// disagree, as they do for a moment during a failover, it waits until they no longer do.
func (s *SentinelSet) Master() *Server {
	s.t.Helper()
	var master *Server
	err := await(s.t, failoverLimit, func(ctx context.Context) (err error) {
		master, err = s.agreedMaster(ctx)
		return err
	})
	must(s.t, "Master", err)
	return master
}

// Replicas returns all servers of the set but the master, also those that are not running.
func (s *SentinelSet) Replicas() []*Server {
	s.t.Helper()
	master := s.Master()
	var replicas []*Server
	for _, server := range s.servers {
		if server != master {
			replicas = append(replicas, server)
		}
	}
	return replicas
}

// WaitForMaster waits until the sentinels agree on another master than not and that one accepts
// writes, and returns it; nil is no master. It fails the test after minutes. As long as they do
// not, they become more and more lenient.
func (s *SentinelSet) WaitForMaster(not *Server) *Server {
	s.t.Helper()
	var master *Server
	since := time.Now()
	err := await(s.t, failoverLimit, func(ctx context.Context) (err error) {
		if time.Since(since) > lenientAfter {
			s.beLenient(ctx)
			since = time.Now()
		}
		if master, err = s.agreedMaster(ctx); err != nil {
			return err
		}
		if master == not {
			return fmt.Errorf("%s is still the master", master.Addr())
		}
		return master.checkWritable(ctx)
	})
	must(s.t, "WaitForMaster", err)
	return master
}

// Calm keeps the sentinels from a failover of their own, for tests that want none: on a busy
// machine a master may be silent for longer than they wait.
func (s *SentinelSet) Calm() {
	s.t.Helper()
	ctx, cancel := within(s.t, queryLimit)
	defer cancel()
	for _, sentinel := range s.sentinels {
		must(s.t, "Calm", sentinel.client.Set(ctx, masterName, "down-after-milliseconds", "600000").Err())
	}
}

// beLenient has the sentinels wait for twice as long before they hold a server to be down or a
// failover to have failed, up to what is usual, and greet each as rarely. On a machine with many
// times as much to do as cores every server is silent for half a second at any time, and the
// sentinels find no replica fit, or each other too slow to vote.
func (s *SentinelSet) beLenient(ctx context.Context) {
	for _, sentinel := range s.sentinels {
		master, err := sentinel.client.Master(ctx, masterName).Result()
		if err != nil {
			continue // one that does not answer is asked the next time
		}
		for setting, most := range map[string]int{"down-after-milliseconds": 8000, "failover-timeout": 24_000} {
			now, err := strconv.Atoi(master[setting])
			if err == nil && now < most {
				_ = sentinel.client.Set(ctx, masterName, setting, strconv.Itoa(min(2*now, most))).Err()
			}
		}
		_ = sentinel.Server.client.Do(ctx, "SENTINEL", "DEBUG", "ping-period", "1000").Err()
	}
}

// agreedMaster returns the server that all answering sentinels, a quorum at least, call master.
func (s *SentinelSet) agreedMaster(ctx context.Context) (*Server, error) {
	var named string
	var votes int
	var errs []error
	for _, sentinel := range s.sentinels {
		addr, err := sentinel.masterAddr(ctx)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("ask sentinel %s for the master: %w", sentinel.Addr(), err))
		case votes > 0 && addr != named:
			return nil, fmt.Errorf("the sentinels disagree: %s or %s", named, addr)
		default:
			named = addr
			votes++
		}
	}
	if votes < quorum {
		return nil, errors.Join(errs...)
	}
	for _, server := range s.servers {
		if server.Addr() == named {
			return server, nil
		}
	}
	return nil, fmt.Errorf("the sentinels name a stranger as master: %s", named)
}

func (s sentinel) masterAddr(ctx context.Context) (string, error) {
	hostPort, err := s.client.GetMasterAddrByName(ctx, masterName).Result()
	return strings.Join(hostPort, ":"), err
}

// checkWritable returns nil when the server takes a write: a deletion of what is not there.
func (s *Server) checkWritable(ctx context.Context) error {
	if s.Pid() == 0 {
		return fmt.Errorf("%s is not running", s.Addr())
	}
	if err := s.client.Del(ctx, "redistest:no-such-key").Err(); err != nil {
		return fmt.Errorf("write to %s: %w", s.Addr(), err)
	}
	return nil
}
