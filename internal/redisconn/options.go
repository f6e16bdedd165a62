package redisconn

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
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
	return safeFailover(&redis.FailoverOptions{
		MasterName: t.Master, SentinelAddrs: t.Hosts,
		SentinelUsername: t.Query.Get("sentinel_username"), SentinelPassword: t.Query.Get("sentinel_password"),
		Username: t.Username, Password: t.Password, DB: t.DB, TLSConfig: t.Security, CredentialsProviderContext: t.Credentials,
		PoolSize: t.poolSize(),
	}, timeout)
}

// safeFailover is [Safe] for a client of the master that sentinels name.
func safeFailover(o *redis.FailoverOptions, timeout time.Duration) *redis.FailoverOptions {
	o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.PipelinePoolSize = onePool
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	return o
}

// ClusterOptions are the options of a client of a cluster.
func ClusterOptions(t Target, timeout time.Duration) *redis.ClusterOptions {
	return safeCluster(&redis.ClusterOptions{
		Addrs:    t.Hosts,
		Username: t.Username, Password: t.Password, TLSConfig: t.Security, CredentialsProviderContext: t.Credentials,
		PoolSize: t.poolSize(),
	}, timeout)
}

// safeCluster is [Safe] for a client of a cluster.
func safeCluster(o *redis.ClusterOptions, timeout time.Duration) *redis.ClusterOptions {
	o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.MaintNotificationsConfig = quiet()
	o.PipelinePoolSize = onePool
	return o
}

// ListReplicas returns a function that returns the addresses of the replicas that sentinels list of
// the master, away ones included: all that any of them lists, since one that was started anew does
// not know of a replica that is away. More than half of the sentinels have to answer.
func ListReplicas(o *redis.FailoverOptions, timeout time.Duration) func(ctx context.Context, attached []string) ([]string, error) {
	return func(ctx context.Context, attached []string) ([]string, error) {
		views := make([]view, len(o.SentinelAddrs))
		// one that hangs must not take all of the call's time
		ctx, cancel := context.WithTimeout(ctx, timeout/3)
		defer cancel()
		var asked sync.WaitGroup
		for i, address := range o.SentinelAddrs {
			asked.Go(func() { views[i] = viewOf(ctx, o, address, timeout) })
		}
		asked.Wait()
		failed := views[0].err
		for _, one := range views {
			failed = cmp.Or(one.err, failed)
		}
		views = slices.DeleteFunc(views, func(one view) bool { return one.err != nil })
		if 2*len(views) <= len(o.SentinelAddrs) {
			return nil, fmt.Errorf("%d of %d sentinels have answered, and more than half have to: %w",
				len(views), len(o.SentinelAddrs), failed)
		}
		return unionOf(views, attached), nil
	}
}

// view is what one sentinel says of a set.
type view struct {
	master string
	others []string // every other server that it knows
	err    error
}

// unionOf are the replicas of all views.
func unionOf(views []view, attached []string) (listed []string) {
	master := masterOf(views, attached)
	for _, one := range views {
		for _, address := range append(one.others, one.master) {
			if address != "" && address != master && !slices.Contains(listed, address) {
				listed = append(listed, address)
			}
		}
	}
	return listed
}

// masterOf is the master that most name of the views that have all which are attached, since one
// that has not heard of a failover yet names the old master; where none does, that most name.
func masterOf(views []view, attached []string) (master string) {
	knows := func(v view) bool {
		return !slices.ContainsFunc(attached, func(replica string) bool { return !slices.Contains(v.others, replica) })
	}
	votes := map[string]int{}
	for _, v := range views {
		votes[v.master]++
		if knows(v) {
			votes[v.master] += len(views)
		}
		if votes[v.master] > votes[master] {
			master = v.master
		}
	}
	return master
}

// viewOf asks one sentinel. In the midst of a failover it names the new master already and still
// has the old one's list, with the new one on it.
func viewOf(ctx context.Context, o *redis.FailoverOptions, address string, timeout time.Duration) (v view) {
	sentinel := redis.NewSentinelClient(Safe(&redis.Options{
		Addr: address, Username: o.SentinelUsername, Password: o.SentinelPassword,
		Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
	}, timeout))
	defer func() { _ = sentinel.Close() }() // it has answered
	known, err := sentinel.Replicas(ctx, o.MasterName).Result()
	if err != nil {
		return view{err: err}
	}
	if at, err := sentinel.GetMasterAddrByName(ctx, o.MasterName).Result(); err == nil && len(at) == 2 {
		v.master = net.JoinHostPort(at[0], at[1])
	}
	if before, err := sentinel.Master(ctx, o.MasterName).Result(); err == nil && v.master != "" {
		known = append(known, before)
	}
	for _, server := range known {
		if server["port"] == "0" {
			continue // a client that copied the data, such as redis-cli --rdb, stays on the list
		}
		if one := net.JoinHostPort(server["ip"], server["port"]); one != v.master && !slices.Contains(v.others, one) {
			v.others = append(v.others, one)
		}
	}
	return v
}
