package redisconn

import (
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// carried are the options of an application's client that a client of a store has as well: where
// and how it connects, its credentials, and the sizes and ages of its pool. Each kind of client has
// some of them.
var carried = []string{
	"Network", "Addr", "NodeAddress", "Addrs", "MaxRedirects", "ClusterStateReloadInterval",
	"MasterName", "SentinelAddrs", "SentinelUsername", "SentinelPassword",
	"ClientName", "DB", "Dialer", "OnConnect", "TLSConfig",
	"Username", "Password", "CredentialsProvider", "CredentialsProviderContext", "StreamingCredentialsProvider",
	"ReadBufferSize", "WriteBufferSize",
	"PoolFIFO", "PoolSize", "MaxConcurrentDials", "MinIdleConns", "MaxIdleConns", "MaxActiveConns",
	"ConnMaxIdleTime", "ConnMaxLifetime", "ConnMaxLifetimeJitter",
}

// carry returns options that have of others what is carried.
func carry[T any](theirs *T) *T {
	own := new(T)
	from, to := reflect.ValueOf(theirs).Elem(), reflect.ValueOf(own).Elem()
	for _, name := range carried {
		if field := to.FieldByName(name); field.IsValid() {
			field.Set(from.FieldByName(name))
		}
	}
	return own
}

// FromClient are the options of a client of the server to which an application's client with these
// options connects: in the same way, with the same credentials and pool, and safe.
func FromClient(o *redis.Options, timeout time.Duration) *redis.Options {
	return Safe(carry(o), timeout)
}

// FromFailover is [FromClient] for a client of the master that sentinels name.
func FromFailover(o *redis.FailoverOptions, timeout time.Duration) *redis.FailoverOptions {
	own := carry(o)
	own.SentinelAddrs = slices.Clone(o.SentinelAddrs)
	return safeFailover(own, timeout)
}

// FromCluster is [FromClient] for a client of a cluster.
func FromCluster(o *redis.ClusterOptions, timeout time.Duration) *redis.ClusterOptions {
	own := carry(o)
	own.Addrs = slices.Clone(o.Addrs)
	return safeCluster(own, timeout)
}
