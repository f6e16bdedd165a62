package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// openDir locks the data directory, loads it, and begins a journal. It may be cut off anywhere:
// until it writes the state, which comes last, the next start finds the same data as this one, or a
// snapshot of it.
func (s *Store) openDir(cfg Config) (err error) {
	dir, err := lockDirectory(cfg.Dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			dir.unlock()
		}
	}()
	last, err := s.loadLocked(dir)
	if err != nil {
		return err
	}
	j := newJournal(s, dir, cfg)
	if err := j.replaceLogs(last); err != nil {
		return err
	}
	if err := dir.writeState(state{Incarnation: s.incarnation}); err != nil {
		return err
	}
	if err := j.begin(last + 1); err != nil {
		return err
	}
	s.exec.Lock()
	defer s.exec.Unlock()
	s.journal = j
	s.clock.arm() // not sooner: what expires has to be noted
	return nil
}

// loadLocked reads the state, the snapshot and the logs, and returns the number of the last log.
// The store is not in use yet.
func (s *Store) loadLocked(dir *directory) (last int, err error) {
	st, known, err := dir.readState()
	if err != nil {
		return 0, err
	}
	logs, err := dir.logs()
	if err != nil {
		return 0, err
	}
	l := loader{store: s, dir: dir, expiry: map[string]int64{}}
	last, found, err := l.snapshot()
	if err == nil && known && !found {
		err = fmt.Errorf("%w: %s is missing; restore it from a backup, or delete %s to start with what the logs hold", ErrCorrupt, snapshotName, stateName)
	}
	for i, n := range logs {
		if err == nil && n > last {
			err = l.log(logName(n), i == len(logs)-1)
			last = n
		}
	}
	if err != nil {
		return 0, err
	}
	l.expire()
	s.beginIncarnation(st, known && dir.complete(st) || !known && !found && len(logs) == 0)
	return last, nil
}

// beginIncarnation goes on with the state's incarnation if the directory is complete, else anew.
func (s *Store) beginIncarnation(st state, complete bool) {
	s.cleanStart, s.incarnation = complete, st.Incarnation
	if s.incarnation == "" || !complete {
		s.incarnation = newIncarnation()
	}
	if !complete {
		raised := s.raiseCounters()
		s.logger.Warn("the store was not stopped cleanly, and the machine was restarted since or the directory is a copy: it begins a new incarnation, "+
			"and counters jump ahead", "incarnation", s.incarnation, "counters", raised, "jump", CounterJump)
	}
	if now := time.Now(); now.Before(st.Last) {
		s.logger.Warn("the clock stands before the last time that the data directory knows; fences and leases count by it",
			"now", now.UTC(), "last", st.Last)
	}
}

// raiseCounters adds CounterJump to every counter, and returns how many there are.
func (s *Store) raiseCounters() (raised int) {
	for _, key := range s.redis.Keys() {
		text, err := s.redis.Get(key)
		if err != nil || s.redis.TTL(key) != 0 {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != text || n > math.MaxInt64-CounterJump {
			continue
		}
		if s.redis.Set(key, strconv.FormatInt(n+CounterJump, 10)) == nil {
			raised++
		}
	}
	return raised
}

// loader replays files. It sets expiries at the end, since a later command may extend one.
type loader struct {
	store  *Store
	dir    *directory
	expiry map[string]int64 // of each key that has one, in milliseconds since 1970
}

// snapshot reads the snapshot, if there is one, and the number of the newest log that it holds.
func (l *loader) snapshot() (logs int, found bool, err error) {
	file, err := os.Open(l.dir.file(snapshotName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	in := newReader(file)
	for {
		start := in.offset
		commands, end, err := in.group()
		if err == nil {
			err = l.apply(commands)
		}
		if err == nil && end.last {
			_, err = in.from.Peek(1)
			if errors.Is(err, io.EOF) {
				return end.logs, true, nil
			}
			err = errors.Join(errors.New("something follows its end"), err)
		}
		if err != nil {
			return 0, true, damage(snapshotName, start, err, "restore it from a backup")
		}
	}
}

// log reads a log. In the last one, a group that was never written to its end is dropped.
func (l *loader) log(name string, last bool) error {
	file, err := os.Open(l.dir.file(name))
	if err != nil {
		return err
	}
	defer file.Close()
	in := newReader(file)
	if torn, err := in.logHead(); err != nil || torn && last {
		return err
	}
	for {
		start := in.offset
		commands, _, err := in.group()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = l.apply(commands)
		} else if last && l.torn(file, start, in.secret) {
			return nil
		}
		if err != nil {
			return damage(name, start, err, "restore a backup, or cut the file off there to give up what follows")
		}
	}
}

// torn reports whether the bytes after an offset are a group that a crash cut off.
func (l *loader) torn(file *os.File, offset int64, secret string) bool {
	rest, err := io.ReadAll(io.NewSectionReader(file, offset, math.MaxInt64-offset))
	if err != nil || !tornOff(rest, offset, secret) {
		return false
	}
	l.store.logger.Warn("the log ends in a group that was not written to its end, and never answered; it is dropped",
		"file", file.Name(), "offset", offset, "bytes", len(rest))
	return true
}

func damage(name string, offset int64, err error, advice string) error {
	return fmt.Errorf("%w: %s, in the group at byte %d: %w; %s", ErrCorrupt, name, offset, err, advice)
}

// replayed are the commands that a file may hold.
var replayed = map[string]bool{
	"DEL": true, "FLUSHALL": true, "HDEL": true, "HSET": true, "PERSIST": true, "PEXPIREAT": true, "RPUSH": true, "SADD": true, "SET": true, "SREM": true,
	"ZADD": true, "ZREM": true,
}

func (l *loader) apply(commands [][]string) error {
	for _, words := range commands {
		if err := l.replay(words); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) replay(words []string) (err error) {
	name := words[0]
	switch {
	case !replayed[name] || name != "FLUSHALL" && len(words) < 2:
		return fmt.Errorf("%q has no place in it", name)
	case name == "PEXPIREAT" && len(words) == 3:
		l.expiry[words[1]], err = strconv.ParseInt(words[2], 10, 64)
		return err
	case name == "FLUSHALL":
		clear(l.expiry)
	case name == "PERSIST", name == "DEL", name == "SET":
		delete(l.expiry, words[1])
	}
	_, err = l.store.askLocked(nil, words...)
	if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") {
		// the snapshot is newer than this command; the one that gave the key its other type follows
		return nil
	}
	return err
}

// expire gives the keys their expiry, removes those that have expired, and weighs the others.
func (l *loader) expire() {
	s := l.store
	for key, until := range l.expiry {
		left := time.Until(time.UnixMilli(until))
		switch {
		case left <= 0:
			s.redis.Del(key)
		case s.redis.Exists(key):
			at := s.clock.now() + left
			s.redis.SetTTL(key, at)
			s.clock.set(key, at)
		}
	}
	for _, key := range s.redis.Keys() {
		s.weights.set(key, s.sizeLocked(key))
	}
}
