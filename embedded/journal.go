package embedded

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// compactPause is how long the store waits before another snapshot when one could not be written.
const compactPause = time.Minute

// journal keeps the log. It notes which keys and parts of keys commands change; a flush reads their
// current values and writes these. So every group in the log can be replayed onto a state that
// already has it, which lets a snapshot be taken key by key while the store serves.
type journal struct {
	store  *Store
	dir    *directory
	logger *slog.Logger

	changes atomic.Uint64 // count of changes noted; raised, under exec, before the change is made
	synced  atomic.Uint64 // how many of them the disk has

	// Guarded by the store's exec lock: what the next flush has to write.
	flushed bool // everything before was deleted
	changed map[string]*change

	mu           sync.Mutex // one flush at a time; taken before exec
	log          logFile
	secret       string // of its seals
	number       int    // of the log
	size         int64  // of the log, in bytes
	snapshotSize int64  // bytes
	leastSize    int64  // of a log that is compacted, in bytes
	err          error  // why the log cannot be written any more

	full       chan struct{} // asks for a compaction
	stop       context.CancelFunc
	compacting sync.WaitGroup
}

// logFile is the part of *os.File that the journal uses.
type logFile interface {
	io.WriteCloser
	Sync() error
}

// change is the part of one key that a flush has to write.
type change struct {
	whole bool                // all of it
	life  bool                // its expiry
	parts map[string]struct{} // these fields or members
}

func newJournal(s *Store, dir *directory, cfg Config) *journal {
	return &journal{
		store: s, dir: dir, logger: cfg.Logger, leastSize: cfg.CompactBytes,
		changed: map[string]*change{}, full: make(chan struct{}, 1),
	}
}

func (j *journal) keyLocked(key string) *change {
	c := j.changed[key]
	if c == nil {
		c = &change{}
		j.changed[key] = c
	}
	return c
}

func (j *journal) noteLocked(key string) {
	j.changes.Add(1)
	j.keyLocked(key).whole = true
}

func (j *journal) noteLifeLocked(key string) {
	j.changes.Add(1)
	j.keyLocked(key).life = true
}

// notePartsLocked notes fields or members of a key that exists.
func (j *journal) notePartsLocked(key string, parts []string) {
	j.changes.Add(1)
	c := j.keyLocked(key)
	if c.parts == nil {
		c.parts = map[string]struct{}{}
	}
	for _, part := range parts {
		c.parts[part] = struct{}{}
	}
}

// noteExpiredLocked notes a key that expired. No reply waits for it: the log has the expiry's time.
func (j *journal) noteExpiredLocked(key string) { j.keyLocked(key).whole = true }

func (j *journal) noteFlushLocked() {
	j.changes.Add(1)
	j.flushed = true
	clear(j.changed)
}

// cover returns once the disk has every change noted before the call, or with an error.
func (j *journal) cover() error {
	want := j.changes.Load()
	if j.synced.Load() >= want {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.synced.Load() >= want {
		return nil
	}
	return j.flushLocked()
}

// flushLocked writes all that was noted, as one group. It needs mu.
func (j *journal) flushLocked() error {
	if j.err != nil {
		return j.err
	}
	j.store.exec.Lock()
	upTo, group := j.changes.Load(), j.takeLocked()
	j.store.exec.Unlock()
	if len(group) > 0 {
		group = appendSeal(group, j.secret, group)
		if err := j.write(group); err != nil {
			j.fail(err)
			return err
		}
	}
	j.synced.Store(upTo)
	if j.size > max(j.leastSize, 2*j.snapshotSize) {
		select {
		case j.full <- struct{}{}:
		default:
		}
	}
	return nil
}

func (j *journal) write(group []byte) error {
	if _, err := j.log.Write(group); err != nil {
		return err
	}
	j.size += int64(len(group))
	return j.log.Sync()
}

// takeLocked turns the noted changes into commands, by the keys' current values. It needs exec.
func (j *journal) takeLocked() []byte {
	var to []byte
	if j.flushed {
		to = appendCommand(to, "FLUSHALL")
	}
	for key, c := range j.changed {
		switch {
		case c.whole:
			to = j.store.appendImageLocked(to, key)
			continue
		case c.parts != nil:
			to = j.store.appendPartsLocked(to, key, slices.Collect(maps.Keys(c.parts)))
		}
		if c.life {
			to = j.appendLifeLocked(to, key)
		}
	}
	j.flushed = false
	clear(j.changed)
	return to
}

func (j *journal) appendLifeLocked(to []byte, key string) []byte {
	switch at := j.store.redis.TTL(key); {
	case j.store.redis.Type(key) == "":
		return appendCommand(to, "DEL", key)
	case at > 0:
		return j.store.appendExpiryLocked(to, key, at)
	default:
		return appendCommand(to, "PERSIST", key)
	}
}

// fail makes the store refuse everything, and ends the connections: their replies have no cover.
func (j *journal) fail(err error) {
	j.err = err
	j.logger.Error("the data directory cannot be written; the store refuses everything until it is started again", "dir", j.dir.path, "error", err)
	j.store.exec.Lock()
	defer j.store.exec.Unlock()
	j.store.failed = err
	j.store.hangUpLocked()
}

// begin opens the first log after a start, and starts the goroutine that compacts.
func (j *journal) begin(number int) error {
	log, secret, err := j.dir.newLog(number)
	if err != nil {
		return err
	}
	j.log, j.secret, j.number = log, secret, number
	ctx, cancel := context.WithCancel(context.Background())
	j.stop = cancel
	j.compacting.Go(func() { j.compactOnDemand(ctx) })
	return nil
}

func (j *journal) compactOnDemand(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.full:
		}
		if err := j.compact(); err != nil {
			j.logger.Warn("no snapshot was written; the log goes on", "dir", j.dir.path, "error", err)
			pause := time.NewTimer(compactPause)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			pause.Stop()
		}
	}
}

// compact goes on with a new log, writes a snapshot, and deletes the logs before.
func (j *journal) compact() error {
	last, err := j.rotate()
	if err != nil {
		return err
	}
	return j.replaceLogs(last)
}

// replaceLogs writes a snapshot, and then deletes the logs that it replaces, up to a number.
func (j *journal) replaceLogs(last int) error {
	if err := j.snapshot(last); err != nil {
		return err
	}
	return j.dir.removeLogs(last)
}

// rotate goes on with a new log, and returns the number of the one before.
func (j *journal) rotate() (last int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, j.err
	}
	log, secret, err := j.dir.newLog(j.number + 1)
	if err != nil {
		return 0, err
	}
	old := j.log
	j.log, j.secret, j.number, j.size = log, secret, j.number+1, 0
	return j.number - 1, old.Close()
}

// close flushes, writes the last snapshot, and marks the stop as clean. Nothing is served after.
func (j *journal) close() error {
	j.stop()
	j.compacting.Wait()
	defer j.dir.unlock()
	j.mu.Lock()
	err := j.flushLocked()
	j.mu.Unlock()
	if err != nil {
		return errors.Join(err, j.log.Close())
	}
	if err := errors.Join(j.log.Close(), j.replaceLogs(j.number)); err != nil {
		return err
	}
	return j.dir.writeState(state{Incarnation: j.store.incarnation, Clean: true})
}
