package embedded

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// maxTTL is the longest time to live that a key can be given.
const maxTTL = 100 * 365 * 24 * time.Hour

// moment is a command's form of an expiry.
type moment struct {
	unit     time.Duration
	absolute bool   // since 1970
	name     string // of the command or the option that says the same in milliseconds from now
}

// expiring are the commands that set an expiry by their third word, options those of SET and GETEX.
var (
	expiring = map[string]moment{
		"EXPIRE":    {time.Second, false, "PEXPIRE"},
		"EXPIREAT":  {time.Second, true, "PEXPIRE"},
		"PEXPIRE":   {time.Millisecond, false, "PEXPIRE"},
		"PEXPIREAT": {time.Millisecond, true, "PEXPIRE"},
		"SETEX":     {time.Second, false, "PSETEX"},
		"PSETEX":    {time.Millisecond, false, "PSETEX"},
	}
	options = map[string]moment{
		"EX":   {time.Second, false, "PX"},
		"EXAT": {time.Second, true, "PX"},
		"PX":   {time.Millisecond, false, "PX"},
		"PXAT": {time.Millisecond, true, "PX"},
	}
)

// retime rewrites a command that sets an expiry, so that it counts from the clock's start, or
// refuses it. What miniredis does not understand is left to it.
func (c *clock) retime(name string, args []string) (rewritten []string, refusal string) {
	if m, ok := expiring[name]; ok && len(args) > 2 {
		return c.restate(m, args, 0, 2, m.name == "PEXPIRE")
	}
	from := map[string]int{"SET": 3, "GETEX": 2}[name]
	for i := from; from > 0 && i+1 < len(args); i++ {
		if m, ok := options[strings.ToUpper(args[i])]; ok {
			return c.restate(m, args, i, i+1, false)
		}
	}
	return args, ""
}

// restate rewrites the word that names the expiry and its value.
func (c *clock) restate(m moment, args []string, word, number int, mayEnd bool) ([]string, string) {
	n, err := strconv.ParseInt(args[number], 10, 64)
	if err != nil {
		return args, ""
	}
	ttl, ok := m.ttl(n)
	switch {
	case !ok || ttl > maxTTL:
		return nil, "ERR embedded store: a TTL over 100 years cannot be kept"
	case ttl > 0 && ttl < MinTTL:
		return nil, fmt.Sprintf("ERR embedded store: a TTL under %d ms cannot be kept, got %d ms", MinTTL.Milliseconds(), millis(ttl))
	case ttl > 0:
		ttl += c.now()
	case mayEnd:
		ttl = 0 // the key goes at once
	case !m.absolute:
		return args, "" // miniredis refuses it
	default:
		return nil, "ERR embedded store: the expiry is in the past"
	}
	args = slices.Clone(args)
	args[word], args[number] = m.name, strconv.FormatInt(millis(ttl), 10)
	return args, ""
}

// ttl is the time from now to a moment, and false if it cannot be counted.
func (m moment) ttl(n int64) (time.Duration, bool) {
	if most := math.MaxInt64 / int64(m.unit); n > most || n < -most {
		return 0, n < 0
	}
	if !m.absolute {
		return time.Duration(n) * m.unit, true
	}
	return time.Until(time.Unix(0, n*int64(m.unit))), true
}

// millis counts the milliseconds of d, rounded up.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// lifetimes are the commands that read an expiry, with the unit of their answer.
var lifetimes = map[string]func(left time.Duration) int64{
	"PTTL":        func(left time.Duration) int64 { return left.Milliseconds() },
	"TTL":         func(left time.Duration) int64 { return int64(left.Round(time.Second).Seconds()) },
	"PEXPIRETIME": func(left time.Duration) int64 { return time.Now().Add(left).UnixMilli() },
	"EXPIRETIME":  func(left time.Duration) int64 { return time.Now().Add(left).Round(time.Second).Unix() },
}

func (s *Store) lifetimeLocked(peer *server.Peer, name, key string) {
	reply, err := s.askLocked(peer.Ctx, "PTTL", key)
	at, ok := reply.(int)
	switch {
	case err != nil:
		peer.WriteError(err.Error())
	case !ok || at < 0: // no such key, or no expiry
		peer.WriteInt(at)
	default:
		left := max(0, time.Duration(at)*time.Millisecond-s.clock.now())
		peer.WriteInt(int(lifetimes[name](left)))
	}
}
