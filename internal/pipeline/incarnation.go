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

// replication is what INFO replication says of a server.
type replication struct {
	id       string // master_replid
	before   string // master_replid2
	replicas int    // that are attached and have a port: others cannot become master
	attached string // their addresses, each with a blank after it
	tools    int    // that are attached without a port and confirm: WAIT counts them
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
	if _, rest, is := strings.Cut(text, "\nmaster_replid:"); is {
		found.id, _, _ = strings.Cut(rest, "\r")
	}
	if _, rest, is := strings.Cut(text, "\nmaster_replid2:"); is {
		found.before, _, _ = strings.Cut(rest, "\r")
	}
	for rest := text; ; {
		before, after, is := strings.Cut(rest, ",port=")
		if !is {
			return found, true
		}
		line, _, _ := strings.Cut(after, "\n")
		switch port, rest, _ := strings.Cut(line, ","); {
		case port == "":
		case port[0] != '0':
			_, host, _ := cutLast(before, "ip=")
			found.replicas++
			found.attached += net.JoinHostPort(host, port) + " "
		case !strings.Contains(rest, "offset=0,"):
			found.tools++
		}
		rest = after
	}
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

// judge compares a marker with the server. What cannot be read because a cluster is moving the slot
// counts as there. info is nil where restarts are trusted; acks is how many replicas confirm a
// write, or [AckAll].
func (m Marker) judge(read *redis.StringCmd, info *replication, acks int, at *server) standing {
	text, err := read.Result()
	if _, elsewhere := redisconn.Redirect(err); elsewhere != "" {
		return inOrder
	}
	word, rest, _ := strings.Cut(text, " ")
	era, _, _ := strings.Cut(rest, " ")
	switch {
	case err != nil || era != m.Era:
		return gone
	case info == nil:
		return inOrder
	}
	noted, _, _ := strings.Cut(word, ":")
	if noted != info.id || !at.covers(word, info.replicas, acks) {
		return unconfirmed
	}
	return inOrder
}

// covers reports whether what is confirmed now is confirmed as the cover of a marker's word says,
// and not by more: then a script has to note that first.
func (s *server) covers(word string, replicas, acks int) bool {
	for range 3 {
		_, word, _ = strings.Cut(word, ":")
	}
	noted, rest, _ := strings.Cut(word, ":")
	if len(noted) != 2 {
		return true // an earlier version has noted it, without a cover
	}
	_, need, _ := strings.Cut(rest, ":")
	if acks == AckAll && !s.replicas.listed() && need != strconv.Itoa(s.replicas.need()) {
		return false
	}
	now := s.cover(acks)
	byAll := acks == AckAll || replicas <= acks
	switch {
	case noted[1] != now[1], noted[0] > now[0]:
		return false
	case noted[0] == levelAll:
		return byAll
	case now[0] == levelAll && byAll:
		return false
	}
	return noted[0] != levelNoReplica || replicas == 0
}

// questionOf is what a script wants before it decides: "ask" that other servers are asked, "all"
// that every replica confirms what it does, or "".
func questionOf(call *call, reply []string) string {
	switch {
	case call.abandoned || !call.script.Incarnation:
	case len(reply) == 3 && reply[0] == "ask", len(reply) == 3 && reply[0] == "all":
		return reply[0]
	}
	return ""
}

// refusalOf is the error of a script that has found that it cannot decide here.
func refusalOf(call *call, reply []string) error {
	switch {
	case call.abandoned || !call.script.Incarnation:
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
