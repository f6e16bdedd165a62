package embedded

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

func (s *Store) do(peer *server.Peer, args []string) {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.expireLocked()
	s.runLocked(peer, args, false)
	s.settleLocked()
}

// miniredis calls hook before every command: before those that the store hands on, which pass, and
// before those that a script calls.
func (s *Store) hook(peer *server.Peer, name string, args ...string) bool {
	if s.pass {
		s.pass = false
		return false
	}
	s.runLocked(peer, append([]string{name}, args...), true)
	return true
}

// runLocked decides about a command: refused, answered by the store itself, or handed on to
// miniredis. called means that a script calls it. Then miniredis holds its lock, and only askLocked
// and dispatchLocked may call it.
func (s *Store) runLocked(peer *server.Peer, args []string, called bool) {
	name := strings.ToUpper(args[0])
	change, writes := writes[name]
	switch {
	case bystanders[name], !s.redis.Server().IsRegisteredCommand(name):
		s.dispatchLocked(peer, args)
	case name == "INFO":
		s.infoLocked(peer, args)
	case name == "SELECT":
		s.selectLocked(peer, args)
	case writes:
		s.writeLocked(peer, name, args, change, called)
	case name == "EVAL" || name == "EVALSHA" || name == "EVAL_RO" || name == "EVALSHA_RO":
		s.scriptLocked(peer, args, called)
	case name == "FLUSHALL" || name == "FLUSHDB":
		s.flushLocked(peer, args)
	case len(args) == 2 && lifetimes[name] != nil:
		s.lifetimeLocked(peer, name, args[1])
	case s.reads(name):
		s.dispatchLocked(peer, args)
	default:
		peer.WriteError(fmt.Sprintf("ERR embedded store does not offer %s; use a real Redis (--redis)", name))
	}
}

func (s *Store) selectLocked(peer *server.Peer, args []string) {
	if len(args) == 2 && args[1] != "0" {
		peer.WriteError("ERR embedded store has no database but 0")
		return
	}
	s.dispatchLocked(peer, args)
}

func (s *Store) writeLocked(peer *server.Peer, name string, args []string, change write, called bool) {
	keys := change.keys(args[1:])
	if !called && change.makes {
		if refusal := s.noRoomLocked(peer.Ctx, keys, keys, written(args[1:])); refusal != "" {
			peer.WriteError(refusal)
			return
		}
	}
	args, refusal := s.clock.retime(name, args)
	if refusal != "" {
		peer.WriteError(refusal)
		return
	}
	s.noteLocked(keys, args[1:], change)
	s.dispatchLocked(peer, args)
}

// noteLocked records what a command is about to change.
func (s *Store) noteLocked(keys, args []string, change write) {
	bytes := written(args)
	if change.life {
		bytes = 0
	}
	for _, key := range keys {
		s.touched = append(s.touched, touch{key, bytes})
	}
}

func (s *Store) flushLocked(peer *server.Peer, args []string) {
	s.dispatchLocked(peer, args)
	if s.countLocked(peer.Ctx) > 0 {
		return // miniredis refuses the arguments
	}
	s.clock.clear()
	s.weights.clear()
}

// scriptLocked runs a script, if there is room for its arguments.
func (s *Store) scriptLocked(peer *server.Peer, args []string, called bool) {
	if called {
		s.dispatchLocked(peer, args) // miniredis refuses it
		return
	}
	keys := declared(args)
	if refusal := s.noRoomLocked(peer.Ctx, keys[:min(1, len(keys))], keys, written(args[min(3, len(args)):])); refusal != "" {
		peer.WriteError(refusal)
		return
	}
	s.script.peer.Ctx, s.script.peer.Resp3 = peer.Ctx, peer.Resp3
	s.dispatchLocked(s.script.peer, args)
	s.script.peer.Flush()
	peer.WriteRaw(plainError(s.script.written.String()))
	s.script.written.Reset()
}

// quoted is how miniredis reports that a redis.call failed inside a script.
var quoted = lazyregexp.New(
	`^-ERR Error compiling script \(new function\): \S*:\d+: ([A-Z]+ .*?) stack traceback:  \[G\]: in function 'call'`)

// plainError makes a script's error begin with the failed command's code, for callers to class it.
func plainError(reply string) string {
	if !strings.HasPrefix(reply, "-") {
		return reply
	}
	if found := quoted().FindStringSubmatch(reply); found != nil {
		return "-" + found[1] + "\r\n"
	}
	return reply
}

// noRoomLocked is why a command or script that may write so much to these keys does not fit; "" if
// it does. It is about an existing record if those of its keys exist that record has.
func (s *Store) noRoomLocked(caller any, record, keys []string, written int64) string {
	exist := func(keys []string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return !s.existsLocked(caller, key) })
		}
	}
	if len(keys) == 0 || s.bytesFit(written, exist(record), exist(keys)) {
		return ""
	}
	return fmt.Sprintf("OOM embedded store holds its cap of %d bytes; use a real Redis (--redis) or wait for keys to expire", s.maxBytes)
}

// declared finds the keys in: EVAL, script, number of keys, key…
func declared(args []string) []string {
	if len(args) < 3 {
		return nil
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 0 || n > len(args)-3 {
		return nil // miniredis refuses it
	}
	return args[3 : 3+n]
}

func (s *Store) countLocked(caller any) int {
	n, _ := s.askLocked(caller, "DBSIZE")
	count, _ := n.(int)
	return count
}

func (s *Store) existsLocked(caller any, key string) bool {
	n, _ := s.askLocked(caller, "EXISTS", key)
	return n == 1
}
