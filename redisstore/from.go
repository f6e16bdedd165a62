package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redisconn"
)

// From returns a store on the Redis of a client that an application has, with connections of its
// own: the client may have any settings, go-redis's defaults among them, and stays what it is. From
// takes a *redis.Client of one server or a *redis.ClusterClient, and asks Redis nothing.
//
// The address, Dialer, TLS, user, password or provider of credentials, DB, ClientName, OnConnect
// and the sizes and ages of the pool are those of the client's options. Repeats, timeouts,
// protocol, cache and routing to replicas are not, since a store promises something about each;
// nor are hooks, a limiter and ClusterOptions.NewClient. The store's connections are more of the
// same: count them in the server's maxclients. [Store.Close] ends them, and the client may be
// closed before.
//
// The prefix, the acknowledgement, the timeouts and the observers are those of the configuration.
// Its URL, TLS, Credentials and MaxBytes stay empty.
//
// A client of redis.NewFailoverClient is refused, since it does not show its sentinels:
// [FromFailover] takes the options that it was made with. So is a redis.Ring, which moves a key to
// another server when one is away, where the key has no history, and every type that does not show
// its servers.
func From(client redis.UniversalClient, config Config) (*Store, error) {
	const fix = "give a *redis.Client or a *redis.ClusterClient"
	switch client := client.(type) {
	case *redis.Client:
		if client == nil {
			return nil, clientError("it is nil", fix)
		}
		return fromServer(client.Options(), config)
	case *redis.ClusterClient:
		if client == nil {
			return nil, clientError("it is nil", fix)
		}
		return fromCluster(client.Options(), config)
	case *redis.Ring:
		return nil, clientError("a redis.Ring moves keys to another server when one is away", fix)
	case nil:
		return nil, clientError("it is nil", fix)
	}
	return nil, clientError(fmt.Sprintf("a %T does not show its servers", client), fix)
}

// clientError says why From cannot use a client, and what mends it.
func clientError(reason, fix string) error {
	return fmt.Errorf("redis client: %s; %s", reason, fix)
}

func fromServer(theirs *redis.Options, config Config) (*Store, error) {
	address := "redis://" + theirs.Addr
	switch {
	case theirs.Addr == "FailoverClient": // as redis.NewFailoverClient has it
		return nil, clientError("it does not show the sentinels that it asks",
			"call redisstore.FromFailover with the redis.FailoverOptions that it was made with")
	case theirs.Network == "unix":
		address = "unix://" + theirs.Addr
	case theirs.TLSConfig != nil:
		address = "rediss://" + theirs.Addr
	}
	store, config, err := config.from(ModeStandalone, address)
	if err != nil {
		return nil, err
	}
	store.engine.Serve(redisconn.FromClient(theirs, config.Timeout))
	return store, nil
}

func fromCluster(theirs *redis.ClusterOptions, config Config) (*Store, error) {
	if theirs.ClusterSlots != nil {
		return nil, clientError("its slots are not those of a Redis Cluster, so that two servers could hold one key",
			"leave redis.ClusterOptions.ClusterSlots nil, and for a Sentinel set call redisstore.FromFailover with its redis.FailoverOptions")
	}
	store, config, err := config.from(ModeCluster, "redis+cluster://"+strings.Join(theirs.Addrs, ","))
	if err != nil {
		return nil, err
	}
	store.engine.Cluster(redisconn.FromCluster(theirs, config.Timeout))
	return store, nil
}

// FromFailover is [From] for the options of redis.NewFailoverClient, which a program with
// redis.UniversalOptions has from their Failover method. The store is always on the master,
// whatever ReplicaOnly and the options about routing say.
func FromFailover(options *redis.FailoverOptions, config Config) (*Store, error) {
	if options == nil {
		return nil, clientError("its redis.FailoverOptions are nil", "give those that it was made with")
	}
	store, config, err := config.from(ModeSentinel, "redis+sentinel://"+strings.Join(options.SentinelAddrs, ",")+"/"+options.MasterName)
	if err := errors.Join(err, checkFailover(options)); err != nil {
		return nil, err
	}
	store.follow(redisconn.FromFailover(options, config.Timeout), config.Timeout)
	return store, nil
}

func checkFailover(o *redis.FailoverOptions) error {
	var faults []error
	if o.MasterName == "" {
		faults = append(faults, clientError("no master is named", "set redis.FailoverOptions.MasterName"))
	}
	if len(o.SentinelAddrs) == 0 {
		faults = append(faults, clientError("there are no sentinels", "set redis.FailoverOptions.SentinelAddrs"))
	}
	return errors.Join(faults...)
}

// from is a store that has no servers yet, and the configuration with its defaults. All faults of
// the configuration are reported together.
func (c Config) from(mode Mode, address string) (*Store, Config, error) {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c = c.WithDefaults()
	if err := errors.Join(append(c.ownConnections(), c.check(mode))...); err != nil {
		return nil, c, err
	}
	redirectGoRedis()
	return c.store(mode, address), c, nil
}

// ownConnections names the settings of stores that no client was given for.
func (c Config) ownConnections() (faults []error) {
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"Credentials", c.Credentials != nil}, {"MaxBytes", c.MaxBytes != 0}, {"TLS", c.TLS != nil},
		{"URL", c.URL != ""},
	} {
		if one.set {
			faults = append(faults, fmt.Errorf("%s: leave it empty, the client has its own", one.name))
		}
	}
	return faults
}
