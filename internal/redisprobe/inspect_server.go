package redisprobe

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// configNames are the settings of a server that package doctor judges. None of them is a secret.
var configNames = []string{
	"appendfsync", "no-appendfsync-on-rewrite", "save", "maxclients",
	"min-replicas-to-write", "min-replicas-max-lag", "repl-backlog-size", "repl-diskless-sync", "repl-diskless-sync-delay",
	"replica-priority", "replica-serve-stale-data", "replica-read-only",
	"cluster-require-full-coverage", "cluster-allow-replica-migration", "cluster-replica-no-failover",
	"busy-reply-threshold", "lua-time-limit", "tcp-keepalive", "timeout", "notify-keyspace-events", "protected-mode", "disable-thp",
}

func (i *inspector) ask(ctx context.Context, addr, tag string) doctor.Inspected {
	host, _, _ := net.SplitHostPort(addr)
	s := doctor.Inspected{Addr: addr, Loopback: loopback(host) || strings.HasPrefix(addr, "/")}
	if err := refusesSession(ctx, i.server(addr)); err != nil {
		s.Away = err.Error()
		return s
	}
	node := i.dial(addr)
	defer node.Close()
	text, err := node.Info(ctx).Result()
	if err != nil && !denied(err) && !isUnknown(err) { // else it is there, and tells little
		s.Away = err.Error()
		return s
	}
	s.Info = redisconn.ParseInfo(text)
	s.Replicas = replicas(s.Info)
	s.Master = s.Info["role"] != "slave"
	i.settings(ctx, node, &s)
	i.try(ctx, node, &s, tag)
	i.measure(ctx, node, &s)
	if s.Master {
		i.formats(ctx, node, &s)
	}
	if s.Master && tag != "" && !i.options.ReadOnly {
		s.Reach = i.reach(ctx, node, tag, len(s.Replicas))
	}
	return s
}

// denied reports whether an answer is that the user may not run the command.
func denied(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), "NOPERM")
}

// isUnknown reports whether an answer is that the server does not know the command.
func isUnknown(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && unknownCommand().MatchString(reply.Error())
}

// unknownCommand has the words of Redis, and of proxies and services before one.
var unknownCommand = lazyregexp.New(`^(?:ERR )?(?i:unknown command|command is not available|unsupported command)`)

// settings reads one setting at a time, since Redis 6.2 takes no more, all in one round trip.
func (i *inspector) settings(ctx context.Context, node *redis.Client, s *doctor.Inspected) {
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
		if value, known := told[name]; known {
			s.Config[name] = value
		}
	}
	if len(s.Config) > 0 {
		s.ConfigUnseen = "" // it tells, though not all of them
	}
}

// formats finds records of a newer format: format 1 has no word (scripts/lib/format.lua). A node of
// a cluster does not have these keys.
func (i *inspector) formats(ctx context.Context, node *redis.Client, s *doctor.Inspected) {
	keys := []string{"counters:{marker}", "segments:{marker}", "locks:{marker}", "incarnation:{store}", "places:{store}"}
	pipe := node.Pipeline()
	texts := make([]*redis.StringCmd, len(keys))
	for at, name := range keys {
		texts[at] = pipe.Get(ctx, i.config.Prefix+name)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for at, name := range keys {
		if word := formatWord().FindString(texts[at].Val()); word != "" && !strings.HasPrefix(word, "@1:") {
			s.Newer = append(s.Newer, name+" "+word)
		}
	}
}

var formatWord = lazyregexp.New(`^@(?:\d+:[\w.+-]+)?`)

// try finds the commands that the server does not have, and those that our user may not run.
func (i *inspector) try(ctx context.Context, node *redis.Client, s *doctor.Inspected, tag string) {
	tried, err := try(ctx, node, commandsOf(redisstore.Mode(i.target.Mode)), i.key(tag)+":none", i.config.Prefix+"doctor:none")
	if err != nil {
		s.Untried = err.Error()
		return
	}
	s.Missing, s.Denied = tried.unknown, tried.denied
}

// key is the key that the inspection writes, in a slot of the server.
func (i *inspector) key(tag string) string { return i.config.Prefix + "doctor:{" + tag + "}" }

// replicas reads a master's report of its replicas.
func replicas(info map[string]string) (list []doctor.InspectedReplica) {
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
		list = append(list, doctor.InspectedReplica{
			Addr: net.JoinHostPort(facts["ip"], facts["port"]), State: facts["state"],
			Lag: time.Duration(lag) * time.Second, Behind: max(written-confirmed, 0),
		})
	}
}
