package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/redisconn"
)

// What a call depends on that Redis may lose, it asks for in its own round trip: a connection that
// stays open says nothing, since a proxy keeps it while the server after it is replaced. Scripts
// ask inside (scripts/lib/incarnation.lua), and an INCRBY is followed by its marker and by INFO
// replication.

// Place is the server at which a script has found a key. The zero Place is none.
type Place struct {
	node   *redis.Client
	asking bool // a cluster is moving the key there
}

// Known reports whether there is a server.
func (p Place) Known() bool { return p.node != nil }

// Marker is a key beside the one that is added to, in the same slot, with the text 'word era …'
// (scripts/lib/counter.lua). An INCRBY counts only where the era is this one, and the word was
// noted in the server's present incarnation.
type Marker struct{ Key, Era string }

// ErrOtherIncarnation is the refusal of a call that was meant for another state of the server, or
// for a server that the key is no longer at. What it may have added is a gap.
var ErrOtherIncarnation = fault.Refusal("another incarnation of the server")

// UnconfirmedError is the answer to an INCRBY that has come to a sum in an incarnation of the
// server that is not noted in its marker, or beside a replica that it was not confirmed by. The
// sum is the caller's if a script then finds that this incarnation continues the one before. It is
// an [ErrOtherIncarnation].
type UnconfirmedError struct {
	Sum int64
	ID  string // of the incarnation in which it ran
}

// Error names the incarnation.
func (e *UnconfirmedError) Error() string { return fmt.Sprintf("%v: %s", ErrOtherIncarnation, e.ID) }

// Unwrap returns ErrOtherIncarnation.
func (e *UnconfirmedError) Unwrap() error { return ErrOtherIncarnation }

// replication is what INFO replication shows of a server.
type replication struct {
	id     string // master_replid
	master bool   // as far as it shows its role
	offset int64  // master_repl_offset
	links  []link // of the replicas that have a port: others cannot become master
}

// link is a line of INFO about a replica.
type link struct {
	place  string // host:port
	online bool   // it has loaded all, and follows
	offset int64  // so much of the history it has confirmed
}

// askReplication is the command that asks for it, in a round trip.
func askReplication(ctx context.Context) *redis.StringCmd {
	return redis.NewStringCmd(ctx, "info", "replication")
}

// readReplication reads the answer; ok is false without one.
func readReplication(answer *redis.StringCmd) (found replication, ok bool) {
	text, err := answer.Result()
	if err != nil {
		return found, false
	}
	role := infoField(text, "role")
	found.id, found.master = infoField(text, "master_replid"), role == "master" || role == ""
	found.offset, _ = strconv.ParseInt(infoField(text, "master_repl_offset"), 10, 64)
	for rest := text; ; {
		_, after, is := strings.Cut(rest, ":ip=")
		if !is {
			return found, true
		}
		line, following, _ := strings.Cut(after, "\n")
		if one, can := readLink(line); can {
			found.links = append(found.links, one)
		}
		rest = following
	}
}

// readLink reads what follows ip= in a line about a replica, and reports whether it has a port.
func readLink(line string) (one link, can bool) {
	words := strings.Split(strings.TrimSpace(line), ",")
	port := "0"
	for _, word := range words[1:] {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "port":
			port = value
		case "state":
			one.online = value == "online"
		case "offset":
			one.offset, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	one.place = net.JoinHostPort(words[0], port)
	return one, port != "0"
}

// infoField is a field of INFO, "" where the server does not show it.
func infoField(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// standing is what the marker of an INCRBY says of its sum.
type standing int

const (
	inOrder     standing = iota
	unconfirmed          // it was noted in another incarnation, or under another cover
	gone                 // it is another era, or no marker
)

// judge compares a marker with the server. A marker that cannot be read because a cluster is moving
// the slot counts as there. trip.info is nil where restarts are trusted.
func (m Marker) judge(read *redis.StringCmd, t *trip, info *replication) standing {
	text, err := read.Result()
	if _, elsewhere := redisconn.Redirect(err); elsewhere != "" {
		return inOrder
	}
	word, rest, _ := strings.Cut(text, " ")
	era, _, _ := strings.Cut(rest, " ")
	switch {
	case err != nil || era != m.Era:
		return gone
	case info == nil || t.server.isNoted(word, *info, t.ack == AckAll, t.epoch):
		return inOrder
	}
	return unconfirmed
}

// isNoted reports whether a word (scripts/lib/word.lua) was noted in the server's present
// incarnation, and has all that a script would note now.
func (s *server) isNoted(word string, info replication, all bool, epoch string) bool {
	parts := strings.SplitN(word, ":", 7)
	if len(parts) != 7 || len(parts[4]) != 2 {
		return false
	}
	id, noted, cover, list := parts[0], parts[3], parts[4], parts[6]
	level := byte(levelSome)
	switch {
	case all && !s.alone:
		level = levelAll
	case len(info.links) == 0:
		level = levelNoReplica
	}
	switch {
	case id != info.id, noted != epoch, cover[1] != s.diskDigit():
		return false
	case level == levelAll:
		return cover[0] == levelAll && s.places.noted(list)
	}
	return cover[0] <= level
}

// questionOf is what a script wants to know before it decides, "" for a script that has decided:
// "ask" the caller has asked another server, "all" it has to wait for all places, "places" for more
// of them.
func questionOf(call *call, reply []string) string {
	if call.abandoned || !call.script.Text().Incarnation || len(reply) == 0 {
		return ""
	}
	switch reply[0] {
	case "ask", "all", "places":
		return reply[0]
	}
	return ""
}

// refusalOf is the error of a script that has found that it cannot decide here.
func refusalOf(call *call, reply []string) error {
	switch {
	case call.abandoned || !call.script.Text().Incarnation:
	case questionOf(call, reply) != "":
		return errUnsettled
	case len(reply) == 2 && reply[0] == "unsuitable":
		return &UnsuitableError{Fact: reply[1]}
	}
	return nil
}

// UnsuitableError is the refusal of a server that cannot show whether it has lost anything. It is
// no matter of time.
type UnsuitableError struct{ Fact string }

// Error names the fact.
func (e *UnsuitableError) Error() string { return e.Fact }

// Unwrap returns the class.
func (e *UnsuitableError) Unwrap() error { return fault.ErrUnsuitable }

// errUnsettled is for a server whose incarnation changes faster than it can be asked.
var errUnsettled = errors.New("the server changes its incarnation again and again")
