package redisprobe

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// UnfitError is the fact of a Redis with which a store cannot work, and what to change.
type UnfitError struct {
	At    string // the server: its URL without user and password, or sentinel host:port
	Found string // the fact, with At as its subject
	Fix   string
}

// Error is one line, without the password.
func (u *UnfitError) Error() string { return u.At + " " + u.Found + ": " + u.Fix }

// Unfit asks the Redis that the configuration names whether a store can work there: that it is of
// the URL's kind, speaks TLS where the URL does and not elsewhere, lets the user in, has Lua, and
// runs all that the store runs. It returns an [*UnfitError] for the first fact against that, before
// any write could stop in its middle, and nil for the embedded store, and where a server is away or
// answers nothing that decides it. What a call can do without, such as INFO for tokens and locks,
// or WAIT without an acknowledgement, is no such fact. It changes nothing, and ends after the
// store's timeout, or twice that where a server takes connections and does not answer.
func Unfit(ctx context.Context, config redisstore.Config) error {
	config = config.WithDefaults()
	target, err := redisconn.Parse(config.URL)
	if err := errors.Join(err, target.Secure(config.TLS, config.Credentials)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	i := &inspector{target: target, config: config, options: Options{Patience: config.Timeout}.withDefaults()}
	switch target.Mode {
	case redisconn.Embedded:
		return nil
	case redisconn.Sentinel:
		return i.unfitSet(ctx)
	case redisconn.Cluster:
		return i.unfitCluster(ctx)
	}
	return i.unfitServer(ctx, target.Server.Addr, "doctor")
}

// unfitSet looks at each sentinel of the URL, and at the master that the first of them names.
func (i *inspector) unfitSet(ctx context.Context) error {
	master := ""
	for _, addr := range i.target.Hosts {
		named, err := i.unfitSentinel(ctx, addr)
		if err != nil {
			return err
		}
		master = cmp.Or(master, named)
	}
	if master == "" {
		return nil
	}
	return i.unfitServer(ctx, master, "doctor")
}

func (i *inspector) unfitSentinel(ctx context.Context, addr string) (master string, err error) {
	node := redis.NewClient(i.sentinelOptions(addr))
	defer node.Close()
	at, with := "sentinel "+addr, "?sentinel_password=PASSWORD in --redis (and sentinel_username=USER)"
	tried, err := try(ctx, node, sentinelCommands, i.target.Master, sentinelChannels[0])
	if err == nil && tried.login == "" && len(tried.denied) == 0 {
		if err := unfitSession(ctx, at, with, i.sentinelOptions(addr)); err != nil {
			return "", err
		}
	}
	switch {
	case err != nil:
		return "", i.unfitTLS(ctx, node.Options(), at, err) // else it is away
	case tried.login != "":
		return "", unfitLogin(at, tried.login, with)
	case slices.Contains(tried.unknown, "SENTINEL"):
		return "", &UnfitError{at, "is a Redis and no sentinel", "--redis redis://" + addr + ", or the sentinels' addresses"}
	case len(tried.denied) > 0:
		return "", &UnfitError{at, "does not let the user run " + strings.Join(tried.denied, ", "),
			"ACL SETUSER " + cmp.Or(i.target.Query.Get("sentinel_username"), "default") + " &+switch-master &+replica-reconf-done" +
				rights(tried.denied) + ", at each sentinel; the user is sentinel_username in --redis"}
	}
	named := redis.NewStringSliceCmd(ctx, "sentinel", "get-master-addr-by-name", i.target.Master)
	if node.Process(ctx, named) != nil || len(named.Val()) != 2 {
		return "", nil // it does not know the master now
	}
	return net.JoinHostPort(named.Val()[0], named.Val()[1]), nil
}

// unfitCluster looks at each master that the first node of the URL which answers knows.
func (i *inspector) unfitCluster(ctx context.Context) error {
	for _, addr := range i.target.Hosts {
		nodes, err := i.nodesOf(ctx, addr)
		if reply, ok := errors.AsType[redis.Error](err); ok {
			switch text := reply.Error(); {
			case strings.Contains(text, "cluster support disabled"):
				return &UnfitError{"redis+cluster://" + addr, "is no node of a cluster", "--redis redis://" + addr}
			default:
				return i.unfitServer(ctx, addr, "") // it says why
			}
		}
		if err != nil {
			if err := i.unfitTLS(ctx, i.server(addr), i.urlOf(addr), err); err != nil {
				return err
			}
			continue
		}
		if err := i.unfitAnnounced(ctx, addr); err != nil {
			return err
		}
		for _, node := range nodes {
			if tag := slotTag(node); node.Master && tag != "" {
				if err := i.unfitServer(ctx, node.Addr, tag); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return nil
}

// unfitServer looks at a data server; tag is that of a slot that it serves.
func (i *inspector) unfitServer(ctx context.Context, addr, tag string) error {
	options := i.server(addr)
	connected := watchConnect(options)
	node := redis.NewClient(options)
	defer node.Close()
	at := i.urlOf(addr)
	with := strings.Replace(at, "://", "://USER:PASSWORD@", 1) + " in --redis; the user default needs no name"
	mode := redisstore.Mode(i.target.Mode)
	// a store works without SUBSCRIBE, for which try needs a connection more
	commands := slices.DeleteFunc(slices.Clone(commandsOf(mode)), func(c needed) bool { return c.name() == "SUBSCRIBE" })
	tried, err := try(ctx, node, commands, i.key(tag)+":none", i.config.Prefix+"doctor:none")
	if err != nil {
		return i.unfitTLS(ctx, node.Options(), at, err) // else it is away
	}
	if tried.login != "" {
		return unfitLogin(at, tried.login, with)
	}
	if len(tried.denied) == 0 && !connected.Load() {
		if err := unfitSession(ctx, at, with, i.server(addr)); err != nil {
			return err
		}
	}
	text, _ := node.Info(ctx).Result() // what it does not tell is not judged
	info := redisconn.ParseInfo(text)
	if mode == redisstore.ModeStandalone {
		if err := i.unfitKind(ctx, node, at, info); err != nil {
			return err
		}
	}
	missing, denied := i.needs(tried.unknown), i.needs(tried.denied)
	switch {
	case info["role"] == "active-replica":
		return &UnfitError{at, "is an active replica (role active-replica): two masters hand out the same values",
			"active-replica no, multi-master no, in keydb.conf; or Redis or Valkey"}
	case info["mvcc_depth"] != "" && i.config.Ack != 0:
		return &UnfitError{at, "is KeyDB, which answers nothing that follows WAIT: no replica can confirm a write", "--ack 0; or Redis or Valkey"}
	case tried.noLua != "":
		return &UnfitError{at, "runs no Lua (" + tried.noLua + ")",
			"every decision is a script: load its module lua, or use a Redis or Valkey that has it"}
	case tried.old:
		return &UnfitError{at, strings.TrimSpace("is Redis "+info["redis_version"]) + ", which lacks forms of commands that locks use",
			"Redis 6.2 or later, or Valkey"}
	case len(missing) > 0:
		return &UnfitError{at, "does not know " + strings.Join(missing, ", "),
			"no line rename-command for them in redis.conf, and a restart; or another server"}
	case len(denied) > 0:
		return &UnfitError{at, "does not let the user run " + strings.Join(denied, ", ") + " under the prefix",
			"ACL SETUSER " + cmp.Or(i.target.Username, "default") + " ~" + i.config.Prefix + "* &" + i.config.Prefix + "*" +
				rights(denied) + ", at each server; coatcheck doctor --redis looks closer"}
	}
	return nil
}

// rights lets a user run commands, in words of ACL SETUSER. Redis refuses a command in the same way
// where the user may run it, and not on that key or channel.
func rights(commands []string) string {
	return " +" + strings.ToLower(strings.Join(commands, " +"))
}

// needs are those of the commands that the store cannot do without. Without PUBLISH and SUBSCRIBE
// waiters poll; without INFO counters, segments and worker ids are refused, and tokens and locks
// work, unless INFO is to say which replicas there are.
func (i *inspector) needs(commands []string) []string {
	without := []string{"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"}
	if i.config.Ack == 0 {
		without = append(without, "WAIT")
	}
	if i.config.Ack != redisstore.AckAll {
		without = append(without, "INFO")
	}
	return slices.DeleteFunc(slices.Clone(commands), func(name string) bool { return slices.Contains(without, name) })
}

// unfitKind finds a server that is no Redis with all keys, and takes no writes.
func (i *inspector) unfitKind(ctx context.Context, node *redis.Client, at string, info map[string]string) error {
	addr := node.Options().Addr
	switch {
	case info["redis_mode"] == "sentinel":
		return &UnfitError{at, "is a sentinel", "--redis redis+sentinel://" + addr + "/<master>"}
	case info["cluster_enabled"] == "1" && !servesAll(ctx, node):
		return &UnfitError{at, "is one node of a cluster, and most keys are at others", "--redis redis+cluster://" + addr}
	case info["role"] == "slave":
		return &UnfitError{at, "is a replica, and takes no writes",
			"--redis redis://" + net.JoinHostPort(info["master_host"], info["master_port"]) +
				", its master; or the Sentinel set or cluster of both"}
	}
	return nil
}

// servesAll reports whether a node of a cluster serves every slot, or does not tell.
func servesAll(ctx context.Context, node *redis.Client) bool {
	ranges, err := node.ClusterSlots(ctx).Result()
	if err != nil {
		return true
	}
	masters := map[string]bool{}
	slots := 0
	for _, one := range ranges {
		slots += one.End - one.Start + 1
		if len(one.Nodes) > 0 {
			masters[one.Nodes[0].ID+one.Nodes[0].Addr] = true
		}
	}
	return slots == redisconn.Slots && len(masters) == 1
}

// urlOf names a server as a URL.
func (i *inspector) urlOf(addr string) string {
	switch {
	case strings.HasPrefix(addr, "/"):
		return "unix://" + addr
	case i.server(addr).TLSConfig != nil:
		return "rediss://" + addr
	}
	return "redis://" + addr
}

// unfitSession finds a server that refuses the login or the database with which a connection
// begins; with is how to log in.
func unfitSession(ctx context.Context, at, with string, options *redis.Options) error {
	reply, answered := errors.AsType[redis.Error](refusesSession(ctx, options))
	switch {
	case !answered:
		return nil
	case notLoggedIn().MatchString(reply.Error()):
		return unfitLogin(at, reply.Error(), with)
	}
	return &UnfitError{at, "does not take the login or the database (" + strings.TrimSpace(reply.Error()) + ")",
		"a server that has AUTH and SELECT; or --redis without user, password and database"}
}

func unfitLogin(at, answer, with string) error {
	if strings.HasPrefix(answer, "WRONGPASS") || strings.Contains(answer, "invalid password") {
		return &UnfitError{at, "does not take the user and password (" + answer + ")", with}
	}
	return &UnfitError{at, "asks for a password", with}
}

// notLoggedIn are the answers to one that has not logged in, or not with the right password. To a
// command of many words it is "unauthenticated multibulk length", and the connection ends.
var notLoggedIn = lazyregexp.New(`^(?:NOAUTH|WRONGPASS)\b|^ERR (?:invalid password|Protocol error: unauthenticated)`)
