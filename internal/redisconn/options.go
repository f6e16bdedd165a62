package redisconn

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// poolSize is how many connections to one server a client may hold where the URL does not say.
// Calls beyond it wait for one, within their own deadline.
const poolSize = 64

// onePool keeps go-redis from a second pool of ten connections for pipelines, beyond pool_size.
const onePool = -1

// Safe sets what go-redis leaves unsafe by default: commands are not repeated, a context's deadline
// holds, a dial is tried once, and nothing is sent that Valkey or an old Redis does not know.
func Safe(options *redis.Options, timeout time.Duration) *redis.Options {
	options.Protocol = 2
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.DialTimeout = timeout
	options.ReadTimeout = timeout
	options.WriteTimeout = timeout
	options.PoolTimeout = timeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = quiet()
	options.PipelinePoolSize = onePool
	options.PoolSize = cmp.Or(options.PoolSize, poolSize)
	return options
}

func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// InProcess are the options of a client of a store in the process.
func InProcess(dial func(context.Context) (net.Conn, error), timeout time.Duration) *redis.Options {
	return Safe(&redis.Options{
		Addr:   "127.0.0.1:0", // never dialed; an IP, so that nothing looks up a name
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}, timeout)
}

// Failover are the options of a client of the master that sentinels name.
func Failover(t Target, timeout time.Duration) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: t.Master, SentinelAddrs: t.Hosts,
		SentinelUsername: t.Query.Get("sentinel_username"), SentinelPassword: t.Query.Get("sentinel_password"),
		Username: t.Username, Password: t.Password, DB: t.DB, TLSConfig: t.Security, CredentialsProviderContext: t.Credentials,
		PoolSize: t.poolSize(), PipelinePoolSize: onePool,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
	}
}

// ClusterOptions are the options of a client of a cluster.
func ClusterOptions(t Target, timeout time.Duration) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs:    t.Hosts,
		Username: t.Username, Password: t.Password, TLSConfig: t.Security, CredentialsProviderContext: t.Credentials,
		PoolSize: t.poolSize(), PipelinePoolSize: onePool,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		MaintNotificationsConfig: quiet(),
	}
}

// ListReplicas returns a function that returns the addresses of the replicas that a sentinel lists
// of the master, away ones included. It asks the sentinels in turn. The first counts that lists all
// which are attached, since one that has not heard of a failover yet lists the new master, and not
// the old one; where none does, the first that answers.
func ListReplicas(t Target, timeout time.Duration) func(ctx context.Context, attached []string) ([]string, error) {
	return func(ctx context.Context, attached []string) (first []string, err error) {
		answered := false
		for _, address := range t.Hosts {
			listed, failed := listedBy(ctx, t, address, timeout)
			switch {
			case failed != nil:
				err = failed
			case !slices.ContainsFunc(attached, func(one string) bool { return !slices.Contains(listed, one) }):
				return listed, nil
			case !answered:
				first, answered = listed, true
			}
		}
		if answered {
			return first, nil
		}
		return nil, err
	}
}

// listedBy asks one sentinel for the replicas of the master. In the midst of a failover it names
// the new master already and still has the old one's list, with the new one on it.
func listedBy(ctx context.Context, t Target, address string, timeout time.Duration) (listed []string, err error) {
	sentinel := redis.NewSentinelClient(Safe(&redis.Options{
		Addr: address, Username: t.Query.Get("sentinel_username"), Password: t.Query.Get("sentinel_password"), TLSConfig: t.Security,
	}, timeout))
	defer func() { _ = sentinel.Close() }() // it has answered
	replicas, err := sentinel.Replicas(ctx, t.Master).Result()
	if err != nil {
		return nil, err
	}
	master := ""
	if at, err := sentinel.GetMasterAddrByName(ctx, t.Master).Result(); err == nil && len(at) == 2 {
		master = net.JoinHostPort(at[0], at[1])
	}
	if before, err := sentinel.Master(ctx, t.Master).Result(); err == nil && master != "" {
		replicas = append(replicas, before)
	}
	for _, replica := range replicas {
		if one := net.JoinHostPort(replica["ip"], replica["port"]); one != master && !slices.Contains(listed, one) {
			listed = append(listed, one)
		}
	}
	return listed, nil
}
