package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// configNames are the settings of a server that matter to what is kept there.
var configNames = []string{
	"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "stop-writes-on-bgsave-error",
	"maxmemory", "maxmemory-policy", "maxclients", "databases",
	"min-replicas-to-write", "min-replicas-max-lag", "repl-backlog-size", "repl-timeout", "replica-priority", "replica-serve-stale-data", "replica-read-only",
	"cluster-require-full-coverage", "cluster-allow-replica-migration", "cluster-node-timeout", "cluster-replica-no-failover",
	"busy-reply-threshold", "lua-time-limit", "tcp-keepalive", "timeout", "notify-keyspace-events", "protected-mode", "requirepass", "disable-thp",
}

// usedCommand is a command with arguments that Redis takes, where K is a key under the prefix, and C a channel.
type usedCommand []string

// usedCommands is what a store needs of a Redis, in scripts and beside them.
var usedCommands = []usedCommand{
	{"PING"},
	{"INFO", "replication"},
	{"TIME"},
	{"EVAL", "return 1", "1", "K"},
	{"EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", "K"},
	{"WAIT", "0", "1"},
	{"PUBLISH", "C", "x"},
	{"SUBSCRIBE", "C"},
	{"GET", "K"},
	{"SET", "K", "x"},
	{"DEL", "K"},
	{"INCRBY", "K", "1"},
	{"DECRBY", "K", "1"},
	{"PEXPIRE", "K", "1000"},
	{"PTTL", "K"},
	{"PERSIST", "K"},
	{"HSET", "K", "f", "x"},
	{"HGET", "K", "f"},
	{"HMGET", "K", "f"},
	{"HGETALL", "K"},
	{"HLEN", "K"},
	{"HDEL", "K", "f"},
	{"HEXISTS", "K", "f"},
	{"ZADD", "K", "0", "m"},
	{"ZCARD", "K"},
	{"ZRANGE", "K", "0", "-1"},
	{"ZRANGEBYLEX", "K", "-", "+"},
	{"ZRANGEBYSCORE", "K", "0", "1"},
	{"ZRANK", "K", "m"},
	{"ZREM", "K", "m"},
	{"ZREMRANGEBYRANK", "K", "0", "0"},
	{"ZREMRANGEBYSCORE", "K", "0", "1"},
	{"ZSCORE", "K", "m"},
}

// used are the commands for a kind of Redis.
func (i *inspector) used() []usedCommand {
	if i.target.mode == Cluster {
		return append(slices.Clip(usedCommands), usedCommand{"CLUSTER", "SLOTS"}, usedCommand{"ASKING"})
	}
	return usedCommands
}

// ask looks at one server.
func (i *inspector) ask(ctx context.Context, addr, tag string) Inspected {
	host, _, _ := net.SplitHostPort(addr)
	s := Inspected{Addr: addr, Loopback: loopback(host) || strings.HasPrefix(addr, "/")}
	node := i.dial(addr)
	defer node.Close()
	text, err := node.Info(ctx).Result()
	if err != nil {
		if denied(err) { // it is there, and tells little
			text, err = "", node.Ping(ctx).Err()
		}
		if err != nil {
			s.Away = err.Error()
			return s
		}
	}
	s.Info = parseInfo(text)
	s.Replicas = replicas(s.Info)
	s.Master = s.Info["role"] != "slave"
	i.settings(ctx, node, &s)
	i.commands(ctx, node, &s)
	i.rights(ctx, node, &s, tag)
	i.measure(ctx, node, &s)
	if s.Master && tag != "" && !i.options.ReadOnly {
		s.Reach = i.reach(ctx, node, tag, len(s.Replicas))
	}
	return s
}

// denied tells whether an answer is Redis's own no, and not that it is away.
func denied(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR")
}

// settings reads one setting at a time, since Redis 6.2 takes no more, all in one round trip.
func (i *inspector) settings(ctx context.Context, node *redis.Client, s *Inspected) {
	pipe := node.Pipeline()
	answers := make([]*redis.MapStringStringCmd, len(configNames))
	for at, name := range configNames {
		answers[at] = pipe.ConfigGet(ctx, name)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	s.Config = map[string]string{}
	for at, name := range configNames {
		told, err := answers[at].Result()
		if err != nil {
			s.ConfigUnseen = err.Error()
			continue
		}
		value, known := told[name]
		if name == "requirepass" && value != "" {
			value = "set"
		}
		if known {
			s.Config[name] = value
		}
	}
	if len(s.Config) > 0 {
		s.ConfigUnseen = "" // it tells, though not all of them
	}
}

// commands finds out which commands the server does not have.
func (i *inspector) commands(ctx context.Context, node *redis.Client, s *Inspected) {
	words := []any{"command", "info"}
	for _, command := range i.used() {
		words = append(words, strings.ToLower(command[0]))
	}
	answers, err := node.Do(ctx, words...).Slice()
	if err != nil || len(answers) != len(i.used()) {
		s.MissingUnseen = "COMMAND INFO is not answered"
		if err != nil {
			s.MissingUnseen = err.Error()
		}
		return
	}
	for at, answer := range answers {
		about, _ := answer.([]any)
		if len(about) == 0 {
			s.Missing = append(s.Missing, i.used()[at][0])
		}
	}
}

// rights finds out which commands our user may not run, on a key of ours: Redis is asked whether it would, and does nothing.
func (i *inspector) rights(ctx context.Context, node *redis.Client, s *Inspected, tag string) {
	user, err := node.Do(ctx, "acl", "whoami").Text()
	if err != nil {
		s.DeniedUnseen = err.Error()
		return
	}
	var commands []usedCommand
	var answers []*redis.Cmd
	pipe := node.Pipeline()
	for _, command := range i.used() {
		if slices.Contains(s.Missing, command[0]) {
			continue
		}
		words := []any{"acl", "dryrun", user}
		for _, word := range command {
			words = append(words, i.place(word, tag))
		}
		commands, answers = append(commands, command), append(answers, pipe.Do(ctx, words...))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for at, answer := range answers {
		text, err := answer.Text()
		switch {
		case err != nil:
			s.Denied, s.DeniedUnseen = nil, err.Error()
			return
		case text != "OK":
			s.Denied = append(s.Denied, commands[at][0])
		}
	}
}

// place fills in a key or a channel.
func (i *inspector) place(word, tag string) string {
	switch word {
	case "K":
		return i.key(tag)
	case "C":
		return i.config.Prefix + "token:{done}"
	}
	return word
}

// key is what the inspection writes, in a slot of the server's.
func (i *inspector) key(tag string) string { return i.config.Prefix + "doctor:{" + tag + "}" }

// replicas reads what a master says of its replicas.
func replicas(info map[string]string) (list []InspectedReplica) {
	written, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	for n := 0; ; n++ {
		line, ok := info["slave"+strconv.Itoa(n)]
		if !ok {
			return list
		}
		facts := map[string]string{}
		for part := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(part, "=")
			facts[name] = value
		}
		lag, _ := strconv.Atoi(facts["lag"])
		confirmed, _ := strconv.ParseInt(facts["offset"], 10, 64)
		list = append(list, InspectedReplica{
			Addr: net.JoinHostPort(facts["ip"], facts["port"]), State: facts["state"],
			Lag: time.Duration(lag) * time.Second, Behind: max(written-confirmed, 0),
		})
	}
}
