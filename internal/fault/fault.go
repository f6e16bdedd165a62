// Package fault finds the class of an error of Redis or go-redis. Every error of a call to Redis
// has one.
package fault

import (
	"errors"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/class"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// The three classes of failure, see package class.
var (
	ErrRefused        = class.ErrRefused
	ErrLost           = class.ErrLost
	ErrUnknownOutcome = class.ErrUnknownOutcome
)

// ErrUnavailable is the refusal of a store that cannot be reached, is loading, read-only, out of
// memory or otherwise takes no writes now.
var ErrUnavailable = Refusal("store unavailable")

// ErrUnsuitable is the refusal of a store that cannot show what a promise rests on, now or later.
var ErrUnsuitable = Refusal("store unsuitable")

// ErrWrongType is the refusal of a script that found a key holding another kind of value than it
// keeps there. Nothing was changed.
var ErrWrongType = Refusal("the key holds another kind of value")

// ErrNewer is the ErrWrongType of a record in a newer format than this version knows.
var ErrNewer = class.Of(ErrWrongType, "the record is in a newer format")

// Refusal returns a sentinel error of the class [ErrRefused]. Domains declare their own with it.
func Refusal(text string) error { return class.Refusal(text) }

// Loss returns a sentinel error of the class [ErrLost].
func Loss(text string) error { return class.Loss(text) }

// Class returns the class of an error of go-redis: ErrUnavailable, ErrUnsuitable, ErrNewer,
// ErrWrongType or ErrUnknownOutcome. sent reports whether the command's bytes were handed to a
// connection, harmless whether running it changes nothing.
func Class(err error, sent, harmless bool) error {
	var reply redis.Error
	switch {
	case errors.Is(err, ErrUnsuitable):
		return ErrUnsuitable
	case errors.Is(err, ErrNewer), errors.As(err, &reply) && newer().MatchString(reply.Error()):
		return ErrNewer
	case errors.As(err, &reply) && IsWrongType(reply):
		return ErrWrongType
	case !sent, harmless, errors.As(err, &reply) && refusals().MatchString(reply.Error()):
		return ErrUnavailable
	}
	return ErrUnknownOutcome
}

// IsWrongType reports whether Redis answered that a key holds another kind of value.
func IsWrongType(reply redis.Error) bool { return wrongType().MatchString(reply.Error()) }

// refusals matches the replies that mean that Redis did not run a command. Before Redis 7 a
// script's inner refusal is quoted inside another text with a dash before its code; since then some
// have a text of their own. Whether a script may run a command, and its user, is looked at for each
// of its commands: the first that it may not run is one before its first write, but for PUBLISH,
// which scripts do without. See package redisstore.
var refusals = lazyregexp.New(`(?:^|[ :]-|^ERR )(?:LOADING|READONLY|NOREPLICAS|MISCONF|OOM|CLUSTERDOWN|MASTERDOWN|` +
	`TRYAGAIN|MOVED|ASK|CROSSSLOT|NOAUTH|NOPERM|WRONGPASS|BUSY|NOSCRIPT|` +
	`max number of clients|unknown command|Protocol error: unauthenticated)\b` +
	`|The user executing the script can't |Unknown (?:Redis )?command called from |ACL failure in script: ` +
	// engines that allow fewer commands in scripts than Redis, or have no Lua, and proxies
	`|command is not allowed from script|Could not find scripting engine|` +
	`^(?:ERR )?(?:(?i:command is not available)|unsupported command|no upstream host)\b`)

var wrongType = lazyregexp.New(`\bWRONGTYPE\b`)

// newer matches the refusal of scripts/lib/format.lua.
var newer = lazyregexp.New(`\bNEWER ([a-z]+) (\d+|\?) (\d+) ([\w.+-]+|\?)`)

// Newer is what a script refused as newer than it knows: the kind of the record, its format and the
// one that this version knows, and the version of coatcheck that can read it. Of a record that does
// not say them Format is 0, and Version empty.
type Newer struct {
	Kind          string
	Format, Known int
	Version       string
}

// ReadNewer reads an ErrNewer of Redis; ok is false for another error.
func ReadNewer(err error) (found Newer, ok bool) {
	words := newer().FindStringSubmatch(err.Error())
	if words == nil {
		return found, false
	}
	found.Kind = words[1]
	found.Format, _ = strconv.Atoi(words[2]) // 0 for a question mark
	found.Known, _ = strconv.Atoi(words[3])  // digits
	if words[4] != "?" {
		found.Version = words[4]
	}
	return found, true
}

// TimedOut reports whether a connection or the pool ended a call. Every time limit of theirs is the
// call's own, but their clocks may be a moment ahead of the context's.
func TimedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &timeout) && timeout.Timeout()
}
