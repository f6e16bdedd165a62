package redisprobe

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/redisstore"
)

// needed is a command that a store runs, in scripts or beside them. Its arguments are such that the
// command changes nothing: the key does not exist, or Redis refuses the arguments after it has
// looked at the user's rights. K stands for a key under the prefix, C for a channel.
type needed []string

func (n needed) name() string { return n[0] }

// neededCommands is what a store needs of every Redis.
var neededCommands = []needed{
	{"PING"},
	{"INFO", "replication"},
	{"TIME"},
	{"EVAL", "return 1", "1", "K"},
	{"EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", "K"},
	{"WAIT", "0", "1"},
	{"PUBLISH", "C", "x"},
	{"SUBSCRIBE", "C"},
	{"UNSUBSCRIBE", "C"},
	{"TYPE", "K"},
	{"GET", "K"},
	{"GETRANGE", "K", "0", "0"},
	{"STRLEN", "K"},
	{"SET", "K", "x", "XX", "GET"}, // a syntax error before Redis 6.2
	{"MSET", "K", "x", "K"},
	{"MSETNX", "K", "x", "K"},
	{"MGET", "K"},
	{"DEL", "K"},
	{"INCRBY", "K", "x"},
	{"DECRBY", "K", "x"},
	{"PEXPIRE", "K", "x"},
	{"PTTL", "K"},
	{"PERSIST", "K"},
	{"HSET", "K", "f", "x", "f"},
	{"HGET", "K", "f"},
	{"HMGET", "K", "f"},
	{"HGETALL", "K"},
	{"HLEN", "K"},
	{"HDEL", "K", "f"},
	{"HEXISTS", "K", "f"},
	{"ZADD", "K", "x", "m"},
	{"ZCARD", "K"},
	{"ZCOUNT", "K", "0", "1"},
	{"ZRANGE", "K", "0", "-1"},
	{"ZRANGEBYLEX", "K", "-", "+"},
	{"ZRANGEBYSCORE", "K", "0", "1"},
	{"ZRANK", "K", "m"},
	{"ZREM", "K", "m"},
	{"ZREMRANGEBYRANK", "K", "0", "0"},
	{"ZSCORE", "K", "m"},
}

// clusterCommands is what a store needs of a cluster besides. NODES and INFO are for [Inspect].
var clusterCommands = []needed{{"ASKING"}, {"CLUSTER", "SLOTS"}, {"CLUSTER", "NODES"}, {"CLUSTER", "INFO"}}

// sentinelCommands is what a store needs of a sentinel, where K stands for the master's name.
// MASTER, REPLICAS and CKQUORUM are for [Inspect].
var sentinelCommands = []needed{
	{"PING"},
	{"INFO", "replication"},
	{"SUBSCRIBE", "C"},
	{"UNSUBSCRIBE", "C"},
	{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "K"},
	{"SENTINEL", "SENTINELS", "K"},
	{"SENTINEL", "MASTER", "K"},
	{"SENTINEL", "REPLICAS", "K"},
	{"SENTINEL", "CKQUORUM", "K"},
}

// sentinelChannels are those that go-redis listens to at a sentinel.
var sentinelChannels = []string{"+switch-master", "+replica-reconf-done"}

func commandsOf(mode redisstore.Mode) []needed {
	if mode == redisstore.ModeCluster {
		return append(slices.Clip(neededCommands), clusterCommands...)
	}
	return neededCommands
}

// Rights are the rules of an ACL user (ACL SETUSER) that can do all that a store does on a kind of
// Redis, and nothing more. [Inspect] sees the settings of a server, too, with +config|get.
func Rights(mode redisstore.Mode, prefix string) []string {
	rules := []string{"~" + prefix + "*", "&" + prefix + "*"}
	if mode != redisstore.ModeCluster {
		rules = append(rules, "+select") // of another database than 0
	}
	return append(rules, granted(commandsOf(mode))...)
}

// SentinelRights are such rules for the user at the sentinels.
func SentinelRights() []string {
	var rules []string
	for _, channel := range sentinelChannels {
		rules = append(rules, "&"+channel)
	}
	return append(rules, granted(sentinelCommands)...)
}

// granted are the rules that allow commands.
func granted(commands []needed) (rules []string) {
	for _, command := range commands {
		rules = append(rules, "+"+command.right())
	}
	return rules
}

// right is the command as a rule names it.
func (n needed) right() string {
	switch name := strings.ToLower(n.name()); name {
	case "cluster", "sentinel":
		return name + "|" + strings.ToLower(n[1])
	default:
		return name
	}
}

// words are the command and its arguments, with a key and a channel in their places.
func (n needed) words(key, channel string) []any {
	words := make([]any, len(n))
	for i, word := range n {
		switch word {
		case "K":
			words[i] = key
		case "C":
			words[i] = channel
		default:
			words[i] = word
		}
	}
	return words
}

type tried struct {
	// that the user may not run; upper case, with their subcommand, such as CLUSTER|SLOTS
	denied  []string
	unknown []string // that the server does not know; upper case
	noLua   string   // what EVAL was answered by a server without Lua
	old     bool     // SET does not take GET: it is a Redis before 6.2
	login   string   // what one who has not logged in was answered; then no more is known
}

// try runs commands on a key that does not exist. Its error means that the server did not answer.
func try(ctx context.Context, node *redis.Client, commands []needed, key, channel string) (found tried, err error) {
	pipe := node.Pipeline()
	answers := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		if command.name() != "SUBSCRIBE" { // a connection that listens does nothing else
			answers[i] = pipe.Do(ctx, command.words(key, channel)...)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, command := range commands {
		var refusal error
		if answers[i] != nil {
			refusal = answers[i].Err()
		} else {
			refusal = trySubscribe(ctx, node, channel)
		}
		switch reply := redis.Error(nil); {
		case refusal == nil:
		case !errors.As(refusal, &reply):
			return tried{}, refusal
		case notLoggedIn().MatchString(reply.Error()):
			return tried{login: reply.Error()}, nil
		case denied(reply):
			found.denied = append(found.denied, strings.ToUpper(command.right()))
		case isUnknown(reply):
			found.unknown = append(found.unknown, command.name())
		case command.name() == "EVAL" && strings.Contains(reply.Error(), "scripting engine"):
			found.noLua = reply.Error()
		case command.name() == "SET" && strings.Contains(reply.Error(), "syntax error"):
			found.old = true
		}
	}
	return found, nil
}

// trySubscribe listens to a channel on a connection of its own.
func trySubscribe(ctx context.Context, node *redis.Client, channel string) error {
	subscription := node.Subscribe(ctx, channel)
	defer subscription.Close()
	_, err := subscription.Receive(ctx)
	return err
}
