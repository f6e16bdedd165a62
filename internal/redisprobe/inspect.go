package redisprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Options are the options of an inspection. The zero value of each field means its default.
type Options struct {
	// of each latency; 0 = 200. There are fewer where they would take more than a second
	Samples  int
	ReadOnly bool                            // writes nothing: no Reach is measured
	Patience time.Duration                   // how long one question may take; 0 = 3 s
	Progress func(doing string, of, all int) // is told before each server is asked; nil = none is
}

func (o Options) withDefaults() Options {
	o.Samples = cmp.Or(o.Samples, 200)
	o.Patience = cmp.Or(o.Patience, 3*time.Second)
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return o
}

// ErrNotInspected is the refusal to inspect a store that has no Redis.
var ErrNotInspected = fault.Refusal("the embedded store has no Redis to look at")

// Inspect asks every server of the Redis that the configuration names: the one, or the master of a
// Sentinel set with its replicas and the sentinels, or all nodes of a cluster. Config.Ack is the
// number of replicas that a write has to reach. Fields of a server name what it hides, such as its
// settings if CONFIG is forbidden, and a server that is away is listed as such. The error means
// that the configuration cannot be used, or that no server answered ([redisstore.ErrUnavailable]).
//
// It changes nothing but, without ReadOnly, one key under the store's prefix on each master, which
// expires after ten seconds. Servers remember the text of two small scripts, as they do of all.
func Inspect(ctx context.Context, config redisstore.Config, options Options) (doctor.Inspection, error) {
	if err := config.Check(); err != nil {
		return doctor.Inspection{}, err
	}
	target, err := redisconn.Parse(config.URL)
	if err := errors.Join(err, target.Secure(config.TLS, config.Credentials)); err != nil {
		return doctor.Inspection{}, err
	}
	if target.Mode == redisconn.Embedded {
		return doctor.Inspection{}, ErrNotInspected
	}
	i := &inspector{target: target, config: config.WithDefaults(), options: options.withDefaults()}
	i.found = doctor.Inspection{Mode: redisstore.Mode(target.Mode), Address: target.Address, LoggedIn: target.LoggedIn(),
		TLS: i.server("").TLSConfig != nil, Database: i.server("").DB}
	i.inspect(ctx)
	if !slices.ContainsFunc(i.found.Servers, func(s doctor.Inspected) bool { return s.Away == "" }) {
		return i.found, &redisstore.Error{Op: "inspect", Class: redisstore.ErrUnavailable, Cause: away(&i.found)}
	}
	return i.found, nil
}

// away is the reason why no server could be asked.
func away(f *doctor.Inspection) error {
	var faults []error
	for _, sentinel := range f.Sentinels {
		if sentinel.Away != "" {
			faults = append(faults, fmt.Errorf("sentinel %s: %s", sentinel.Addr, sentinel.Away))
		}
	}
	for _, server := range f.Servers {
		faults = append(faults, fmt.Errorf("%s: %s", server.Addr, server.Away))
	}
	if len(faults) == 0 {
		return errors.New("no sentinel knows a master of that name")
	}
	return errors.Join(faults...)
}

type inspector struct {
	target  redisconn.Target
	config  redisstore.Config
	options Options
	found   doctor.Inspection
}

func (i *inspector) inspect(ctx context.Context) {
	servers := map[string]string{} // the slot tag of a key that a server may be written to with
	var order []string
	add := func(addr, tag string) {
		if _, known := servers[addr]; !known {
			order = append(order, addr)
		}
		servers[addr] = tag
	}
	switch i.target.Mode {
	case redisconn.Sentinel:
		for _, addr := range i.sentinels(ctx) {
			add(addr, "doctor")
		}
	case redisconn.Cluster:
		for _, node := range i.cluster(ctx) {
			add(node.Addr, slotTag(node))
		}
	default:
		add(i.target.Server.Addr, "doctor")
	}
	at := 0
	for at < len(order) { // it grows by the replicas that masters tell of
		i.options.Progress("asking "+order[at], at+1, len(order))
		server := i.ask(ctx, order[at], servers[order[at]])
		i.found.Servers = append(i.found.Servers, server)
		for _, replica := range server.Replicas {
			if i.target.Mode != redisconn.Cluster && !i.same(order, replica.Addr) {
				add(replica.Addr, "doctor")
			}
		}
		at++
	}
}

// same reports whether an address is on a list, by another name as well where both are this host.
func (i *inspector) same(list []string, addr string) bool {
	host, port, _ := net.SplitHostPort(addr)
	return slices.ContainsFunc(list, func(other string) bool {
		h, p, _ := net.SplitHostPort(other)
		return other == addr || p == port && loopback(h) && loopback(host)
	})
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// server returns the target of a server at an address; "" is the one of the URL.
func (i *inspector) server(addr string) *redis.Options {
	options := &redis.Options{Username: i.target.Username, Password: i.target.Password, DB: i.target.DB, TLSConfig: i.target.Security}
	if own := i.target.Server; own != nil {
		options = &redis.Options{Network: own.Network, Addr: own.Addr, Username: own.Username, Password: own.Password, DB: own.DB,
			TLSConfig: own.TLSConfig}
	}
	if addr != "" && addr != options.Addr {
		options.Network, options.Addr = "tcp", addr
		if options.TLSConfig != nil && (i.config.TLS == nil || i.config.TLS.ServerName == "") {
			options.TLSConfig = options.TLSConfig.Clone()
			options.TLSConfig.ServerName = "" // the host's that is dialed
		}
	}
	options.PoolSize, options.CredentialsProviderContext = 1, i.target.Credentials
	return redisconn.Safe(options, i.options.Patience)
}

func (i *inspector) dial(addr string) *redis.Client { return redis.NewClient(i.server(addr)) }

// refusesSession returns why no connection to a server can be used; nil = one can. Without a login
// every error is the reply to AUTH, whatever was asked.
func refusesSession(ctx context.Context, options *redis.Options) error {
	connected := watchConnect(options)
	node := redis.NewClient(options)
	defer node.Close()
	if err := node.Ping(ctx).Err(); !connected.Load() {
		return err
	}
	return nil
}

// watchConnect returns what becomes true once a server has taken the login and the database of a
// connection with these options.
func watchConnect(options *redis.Options) *atomic.Bool {
	var connected atomic.Bool
	options.OnConnect = func(context.Context, *redis.Conn) error {
		connected.Store(true)
		return nil
	}
	return &connected
}
