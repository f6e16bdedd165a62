package redisstore

import (
	"cmp"
	"errors"
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
// Its URL, TLS, Credentials, MaxKeys and MaxBytes stay empty.
//
// A client of redis.NewFailoverClient is refused, since it does not show its sentinels:
// [FromFailover] takes the options that it was made with. So is a redis.Ring, which moves a key to
// another server when one is away, where the key has no history, and every type that does not show
// its servers.
func From(client redis.UniversalClient, config Config) (*Store, error) {
	theirs, err := share(client)
	switch {
	case err != nil:
		return nil, err
	case theirs.mode == Sentinel:
		return nil, clientError("it does not show the sentinels that it asks",
			"call redisstore.FromFailover with the redis.FailoverOptions that it was made with")
	case theirs.cluster != nil:
		if err := ownSlots(theirs.cluster.Options()); err != nil {
			return nil, err
		}
	}
	store, config, err := config.from(theirs.mode, theirs.address)
	if err != nil {
		return nil, err
	}
	if theirs.cluster != nil {
		store.engine.Cluster(redisconn.FromCluster(theirs.cluster.Options(), config.Timeout))
	} else {
		store.engine.Serve(redisconn.FromClient(theirs.client.Options(), config.Timeout))
	}
	return store, nil
}

// FromFailover is [From] for the options of redis.NewFailoverClient, which a program with
// redis.UniversalOptions has from their Failover method. The store is always on the master,
// whatever ReplicaOnly and the options about routing say.
func FromFailover(options *redis.FailoverOptions, config Config) (*Store, error) {
	if options == nil {
		return nil, clientError("its redis.FailoverOptions are nil", "give those that it was made with")
	}
	store, config, err := config.from(Sentinel, "redis+sentinel://"+strings.Join(options.SentinelAddrs, ",")+"/"+options.MasterName)
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
	c = c.overNetwork()
	if err := errors.Join(append(c.ownConnections(), c.check(mode))...); err != nil {
		return nil, c, err
	}
	redirectGoRedis()
	return c.store(mode, address), c, nil
}

// overNetwork is the configuration with the defaults of a store without a URL that is not embedded.
func (c Config) overNetwork() Config {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	return c.WithDefaults()
}
