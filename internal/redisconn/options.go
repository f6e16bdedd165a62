package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
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
	options.PoolTimeout = poolWait(timeout)
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = quiet()
	options.PipelinePoolSize = onePool
	options.PoolSize = cmp.Or(options.PoolSize, poolSize)
	options.Dialer = guarded(options.Dialer, options.TLSConfig, timeout)
	return options
}

// poolWait is how long a call waits for a connection: less than its own time, or it would end by
// that, and go-redis would not count that it has waited in vain.
func poolWait(timeout time.Duration) time.Duration { return timeout / 10 * 9 }

func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// InProcess are the options of a client of a store in the process.
func InProcess(dial func(context.Context) (net.Conn, error), timeout time.Duration) *redis.Options {
	// never dialed; an IP, so that nothing looks up a name
	own := Safe(&redis.Options{Addr: "127.0.0.1:0"}, timeout)
	own.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return own
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
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, poolWait(timeout)
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.PipelinePoolSize = onePool
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.Dialer = guarded(o.Dialer, o.TLSConfig, timeout)
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
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, poolWait(timeout)
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.MaintNotificationsConfig = quiet()
	o.PipelinePoolSize = onePool
	o.Dialer = guarded(o.Dialer, o.TLSConfig, timeout)
	return o
}

// ListPlaces returns a function that returns the places of a master's set, as host:port: its own,
// and by their addresses the first digits of the run_id of all others, unreachable ones included.
// A place counts if any sentinel lists it, since one that was started anew does not know of a
// replica that is away. More than half of the sentinels have to answer. The master's own place is
// the one at which a sentinel has found its run, or else the one that most sentinels name.
func ListPlaces(
	o *redis.FailoverOptions, timeout time.Duration,
) func(ctx context.Context, run string) (own string, others map[string]string, err error) {
	return func(ctx context.Context, run string) (own string, others map[string]string, err error) {
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
			return "", nil, fmt.Errorf("%d of %d sentinels have answered, and more than half have to: %w",
				len(views), len(o.SentinelAddrs), failed)
		}
		own, others = unionOf(views, run)
		return own, others, nil
	}
}

// view is what one sentinel knows of a set.
type view struct {
	master string
	found  map[string]seen // by place
	err    error
}

// seen is what a sentinel has seen at a place: the first digits of a run_id, and how long ago.
type seen struct {
	run string
	ago int
}

// runDigits is how many digits of a run_id are compared.
const runDigits = 16

// unionOf are the places of all views. Of several runs at a place the one counts that was seen
// last.
func unionOf(views []view, run string) (own string, others map[string]string) {
	votes, last := map[string]int{}, map[string]seen{}
	for _, one := range views {
		votes[one.master]++
		for place, at := range one.found {
			if before, is := last[place]; !is || at.ago < before.ago {
				last[place] = at
			}
		}
	}
	for _, one := range views {
		if votes[one.master] > votes[own] || own == "" {
			own = one.master
		}
	}
	others = map[string]string{}
	for place, at := range last {
		others[place] = at.run
		if at.run != "" && at.run == run {
			own = place
		}
	}
	delete(others, own)
	return own, others
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
	at, err := sentinel.GetMasterAddrByName(ctx, o.MasterName).Result()
	if err != nil || len(at) != 2 {
		return view{err: cmp.Or(err, errors.New("it names no master"))}
	}
	v = view{master: net.JoinHostPort(at[0], at[1]), found: map[string]seen{}}
	v.found[v.master] = seen{ago: math.MaxInt}
	if before, err := sentinel.Master(ctx, o.MasterName).Result(); err == nil {
		known = append(known, before)
	}
	for _, server := range known {
		if server["port"] == "0" {
			continue // a client that copied the data, such as redis-cli --rdb, stays on the list
		}
		run, place := server["runid"], net.JoinHostPort(server["ip"], server["port"])
		ago, err := strconv.Atoi(server["info-refresh"])
		if err != nil || run == "" {
			ago = math.MaxInt
		}
		if before, is := v.found[place]; !is || ago < before.ago {
			v.found[place] = seen{run[:min(len(run), runDigits)], ago}
		}
	}
	return v
}
