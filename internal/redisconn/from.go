package redisconn

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// FromClient are the options of a client of the server to which an application's client with these
// options connects: in the same way, with the same credentials and pool, and safe.
func FromClient(o *redis.Options, timeout time.Duration) *redis.Options {
	return Safe(&redis.Options{
		Network: o.Network, Addr: o.Addr, NodeAddress: o.NodeAddress, ClientName: o.ClientName, DB: o.DB,
		Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		ReadBufferSize:               o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, MaxConcurrentDials: o.MaxConcurrentDials,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
	}, timeout)
}

// FromFailover is [FromClient] for a client of the master that sentinels name.
func FromFailover(o *redis.FailoverOptions, timeout time.Duration) *redis.FailoverOptions {
	return safeFailover(&redis.FailoverOptions{
		MasterName: o.MasterName, SentinelAddrs: slices.Clone(o.SentinelAddrs),
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		ClientName: o.ClientName, DB: o.DB, Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		ReadBufferSize:               o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, MaxConcurrentDials: o.MaxConcurrentDials,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
	}, timeout)
}

// FromCluster is [FromClient] for a client of a cluster.
func FromCluster(o *redis.ClusterOptions, timeout time.Duration) *redis.ClusterOptions {
	return safeCluster(&redis.ClusterOptions{
		Addrs: slices.Clone(o.Addrs), MaxRedirects: o.MaxRedirects, ClusterStateReloadInterval: o.ClusterStateReloadInterval,
		ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		ReadBufferSize:               o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, MaxConcurrentDials: o.MaxConcurrentDials,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
	}, timeout)
}
