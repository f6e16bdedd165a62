package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// New returns a store that shares the connections of the caller's client; [From] makes others,
// needs no settings, and is what most want. The client is a *redis.Client, which may be one of
// redis.NewFailoverClient, or a *redis.ClusterClient. The store shares its hooks as well, which see
// keys and arguments, tokens and the secrets of leases among them. It does not wait for Redis, and
// it never closes the client: [Store.Close] ends the store's own work, and the caller closes the
// client afterwards.
//
// The prefix, the acknowledgement, the timeouts and the observers are those of the configuration.
// Its URL, TLS, Credentials, MaxKeys and MaxBytes stay empty, since they are about
// connections that the store makes itself.
//
// What a store promises depends on some of the client's settings, which New checks. All faults are
// reported together, each with what mends it:
//
//   - MaxRetries is -1 (in redis.ClusterOptions 0, its default, is the same): go-redis otherwise
//     sends a command again whose reply was lost, and an increment is done twice.
//   - ContextTimeoutEnabled is true, and ReadTimeout and WriteTimeout are -1 or no less than
//     [Config].Timeout, and not -2: the end of each call is that of its context, no later and no
//     sooner.
//   - There is no cache on the client's side, which answers with what was true before.
//   - A cluster client routes nothing to replicas (ReadOnly, RouteByLatency, RouteRandomly), and
//     asks the cluster for its slots (no ClusterSlots, which redis.NewFailoverClusterClient sets).
//
// A redis.Ring is refused: it moves a key to another server when one is away, where the key has no
// history. So is every other type, since a store has to know each server by itself. A client of
// redis.NewFailoverClient with ReplicaOnly looks like one without; Redis refuses its writes.
//
// Such a store differs from one of [Open] in this: where Redis refuses connections, a call fails
// after the client's DialerRetries, and not at once unless they are 1; and a round trip with an
// increment of package counter also asks for INFO replication, since the store does not see when
// the client makes connections. For the same reason observers are told of another incarnation when
// such a round trip finds it.
func New(client redis.UniversalClient, config Config) (*Store, error) {
	shared, err := share(client)
	if err != nil {
		return nil, err
	}
	config = config.overNetwork()
	faults := config.ownConnections()
	faults = append(faults, config.check(shared.mode), shared.check(config.Timeout))
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	store := config.store(shared.mode, shared.address)
	store.engine.Lend(shared.client, shared.cluster, func(node *redis.Options) error { return checkClient(node, config.Timeout) })
	return store, nil
}

// ownConnections names the settings of stores with their own connections.
func (c Config) ownConnections() (faults []error) {
	for name, set := range map[string]bool{
		"URL": c.URL != "", "TLS": c.TLS != nil, "Credentials": c.Credentials != nil, "MaxKeys": c.MaxKeys != 0,
		"MaxBytes": c.MaxBytes != 0,
	} {
		if set {
			faults = append(faults, fmt.Errorf("%s: leave it empty, the client has its own", name))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// shared is a caller's client, one of the two.
type shared struct {
	mode    Mode
	address string // for people
	client  *redis.Client
	cluster *redis.ClusterClient
}

// clientError says why New cannot use a client, and what mends it.
func clientError(reason, fix string) error {
	return fmt.Errorf("redis client: %s; %s", reason, fix)
}

// share returns a caller's client by its kind.
func share(client redis.UniversalClient) (shared, error) {
	const fix = "give a *redis.Client or a *redis.ClusterClient"
	switch client := client.(type) {
	case *redis.Client:
		if client == nil {
			return shared{}, clientError("it is nil", fix)
		}
		mode, address := named(client.Options())
		return shared{mode: mode, address: address, client: client}, nil
	case *redis.ClusterClient:
		if client == nil {
			return shared{}, clientError("it is nil", fix)
		}
		return shared{mode: Cluster, address: "redis+cluster://" + strings.Join(client.Options().Addrs, ","), cluster: client}, nil
	case *redis.Ring:
		return shared{}, clientError("a redis.Ring moves keys to another server when one is away", fix)
	case nil:
		return shared{}, clientError("it is nil", fix)
	}
	return shared{}, clientError(fmt.Sprintf("a %T does not show its servers", client), fix)
}

// named is the kind and address of a client's Redis. Its options do not hold the sentinels.
func named(options *redis.Options) (Mode, string) {
	switch {
	case bySentinels(options):
		return Sentinel, "redis+sentinel:"
	case options.Network == "unix":
		return Standalone, "unix://" + options.Addr
	case options.TLSConfig != nil:
		return Standalone, "rediss://" + options.Addr
	}
	return Standalone, "redis://" + options.Addr
}

// bySentinels reports whether the options are those of a client of redis.NewFailoverClient.
func bySentinels(options *redis.Options) bool { return options.Addr == "FailoverClient" }

// check finds the settings of a client that would break a store's promises.
func (s shared) check(timeout time.Duration) error {
	if s.client != nil {
		return checkClient(s.client.Options(), timeout)
	}
	return checkCluster(s.cluster.Options(), timeout)
}

// clientFaults collects the faults of a client's options.
type clientFaults struct {
	of   string // the type of the options that the caller has written
	from string // what takes the client, or its options, as they are
	all  []error
}

func (f *clientFaults) add(bad bool, setting, reason, fix string) {
	if bad {
		f.all = append(f.all, clientError(reason, strings.ReplaceAll(fix, "SETTING", f.of+"."+setting)+", or call "+f.from))
	}
}

// checkClient looks at options as NewClient has filled them: -1 retries or timeout is 0 there.
func checkClient(o *redis.Options, timeout time.Duration) error {
	f := &clientFaults{of: "redis.Options", from: "redisstore.From in place of New"}
	if bySentinels(o) {
		f.of, f.from = "redis.FailoverOptions", "redisstore.FromFailover with them"
	}
	f.add(o.MaxRetries != 0, "MaxRetries", fmt.Sprintf("it sends a command up to %d times again when the reply is lost, so that an "+
		"increment is done more than once", o.MaxRetries), "set SETTING to -1")
	f.times(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout, timeout)
	f.add(o.ClientSideCache != nil || o.ClientSideCacheConfig != nil, "ClientSideCacheConfig", "it answers reads from a cache",
		"leave SETTING and redis.Options.ClientSideCache nil")
	return errors.Join(f.all...)
}

// checkCluster looks at options as NewClusterClient has filled them: MaxRetries stays -1 there.
func checkCluster(o *redis.ClusterOptions, timeout time.Duration) error {
	f := &clientFaults{of: "redis.ClusterOptions", from: "redisstore.From in place of New"}
	f.add(o.MaxRetries > 0, "MaxRetries", fmt.Sprintf("it sends a command up to %d times again when the reply is lost, so that an "+
		"increment is done more than once", o.MaxRetries), "set SETTING to -1")
	f.times(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout, timeout)
	routed := "it may read from a replica, which lags"
	f.add(o.RouteByLatency, "RouteByLatency", routed, "set SETTING to false")
	f.add(o.RouteRandomly, "RouteRandomly", routed, "set SETTING to false")
	f.add(o.ReadOnly && !o.RouteByLatency && !o.RouteRandomly, "ReadOnly", routed, "set SETTING to false")
	return errors.Join(append(f.all, ownSlots(o))...)
}

// ownSlots is the fault of a cluster client that has its slots from elsewhere than the cluster.
func ownSlots(o *redis.ClusterOptions) error {
	if o.ClusterSlots == nil {
		return nil
	}
	return clientError("its slots are not those of a Redis Cluster, so that two servers could hold one key",
		"leave redis.ClusterOptions.ClusterSlots nil, and for a Sentinel set call redisstore.FromFailover with its redis.FailoverOptions")
}

// times checks the timeouts of a call. 0 is a connection without one; less ignores the context's.
func (f *clientFaults) times(byContext bool, read, write, timeout time.Duration) {
	f.add(!byContext, "ContextTimeoutEnabled", "a call does not end with its context", "set SETTING to true")
	for _, one := range []struct {
		setting string
		value   time.Duration
	}{{"ReadTimeout", read}, {"WriteTimeout", write}} {
		f.add(one.value < 0, one.setting, "its connections take no deadline, so that a call may never end", "set SETTING to -1")
		f.add(one.value > 0 && one.value < timeout, one.setting,
			fmt.Sprintf("it gives a call up after %v, before the store's timeout of %v", one.value, timeout),
			fmt.Sprintf("set SETTING to %v or more, or redisstore.Config.Timeout to %v or less", timeout, one.value))
	}
}
