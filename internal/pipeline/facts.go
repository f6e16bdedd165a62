package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/scripts"
)

// AckAll waits for every replica that can become master: those that Sentinel or the cluster lists,
// away ones included, and on one server the most that this process has seen attached to it.
const AckAll = -1

// Restarts is how another incarnation of a server is judged: auto, wait or trust. Package
// redisstore documents them.
type Restarts string

// The ways to judge it.
const (
	Auto  Restarts = "auto"
	Wait  Restarts = "wait"
	Trust Restarts = "trust"
)

// From which age on what is known of a server is asked for again beside the calls, and before them,
// where none was made for long; and the former where replicas do not confirm.
const (
	refreshFacts = 5 * time.Second
	oldFacts     = 2 * refreshFacts
	refreshShort = 500 * time.Millisecond
)

// facts is what an engine knows of its servers beside what scripts see. It is safe for concurrent
// use.
type facts struct {
	servers sync.Map // *redis.Client to *server
	// list returns which replicas of a master are listed, away ones included. nil: there is no
	// list, and only what is attached is known.
	list func(ctx context.Context, node *redis.Client, attached []string) (Listed, error)
	set  string // cluster | alone
	key  string // has the replicas of a server that is on no list
}

// server is what is known of one server.
type server struct {
	replicas replicas
	disk     atomic.Bool  // what it confirms is on disk
	asked    atomic.Int64 // when, in nanoseconds of this process's clock; 0 = never
	asking   atomic.Bool
	failed   atomic.Int64           // when it could not be asked again, likewise
	turn     chan struct{}          // holds one that asks while nothing is known
	strict   atomic.Bool            // every replica has to confirm what depends on the incarnation
	short    atomic.Bool            // fewer confirmed than have to, as far as is known
	hidden   atomic.Bool            // it refuses to show its settings, and is not asked any more
	last     atomic.Pointer[string] // the incarnation that was seen last
}

var started = time.Now()

func (f *facts) of(node *redis.Client) *server {
	if found, is := f.servers.Load(node); is {
		return found.(*server)
	}
	fresh := &server{turn: make(chan struct{}, 1)}
	found, was := f.servers.LoadOrStore(node, fresh)
	if !was {
		f.servers.Range(func(key, _ any) bool {
			if other := key.(*redis.Client); other != node && isClosed(other) {
				f.servers.Delete(other)
			}
			return true
		})
	}
	return found.(*server)
}

// saw notes what a round trip has shown, and reports whether the incarnation is another than the
// last.
func (s *server) saw(found replication) (another bool) {
	if last := s.last.Load(); last != nil && *last == found.id {
		s.replicas.saw(found)
		return false
	}
	before := s.last.Swap(&found.id)
	s.replicas.anew(found)
	s.asked.Store(0)
	return before != nil && *before != found.id
}

// know asks a server for what scripts cannot see, unless that is known and new enough. What was
// known before stays in use while it is asked again beside calls, and where it cannot be.
func (s *Engine) know(ctx context.Context, node *redis.Client) (*server, error) {
	known := s.facts.of(node)
	if known.isOld() {
		return known, s.begin(ctx, node, known)
	}
	s.refresh(node, known)
	return known, nil
}

// sinceStarted is the time of this process's clock, and never 0.
func sinceStarted() int64 { return int64(max(time.Since(started), 1)) }

// isOld reports whether a server has to be asked before the next call: nothing is known of it, or
// no call was made for so long that a replica may have come and gone.
func (s *server) isOld() bool {
	last := s.asked.Load()
	if failed := s.failed.Load(); failed != 0 && last != 0 {
		last = max(last, failed)
	}
	return last == 0 || sinceStarted()-last > int64(oldFacts)
}

// begin asks a server of which nothing is known, or nothing new, once for all calls that want it.
func (s *Engine) begin(ctx context.Context, node *redis.Client, known *server) error {
	select {
	case known.turn <- struct{}{}:
		defer func() { <-known.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !known.isOld() {
		return nil
	}
	_, err := s.learn(ctx, node, known)
	if err != nil && known.asked.Load() != 0 {
		known.failed.Store(sinceStarted())
		return nil
	}
	return err
}

// refresh asks a server again, beside the call, if what is known of it is old.
func (s *Engine) refresh(node *redis.Client, known *server) {
	age := refreshFacts
	if known.short.Load() { // it may be that one has gone from the list
		age = refreshShort
	}
	if sinceStarted()-known.asked.Load() <= int64(age) || !known.asking.CompareAndSwap(false, true) {
		return
	}
	s.batchers.batches.Go(func() {
		defer known.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		_, _ = s.learn(ctx, node, known) // what was known stays, and is asked for again
	})
}

// learn asks a server and its list, and returns the incarnation that it has asked.
func (s *Engine) learn(ctx context.Context, node *redis.Client, known *server) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipe := node.Pipeline()
	settings := map[string]*redis.MapStringStringCmd{}
	for name := range onDisk {
		if !known.hidden.Load() {
			settings[name] = pipe.ConfigGet(ctx, name)
		}
	}
	info := askReplication(ctx)
	_ = pipe.Process(ctx, info) // it only takes the command in
	var self *redis.StringCmd
	if s.facts.list == nil && s.ackAt(node) == AckAll {
		self = askSelf(ctx, pipe)
	}
	_, err = pipe.Exec(ctx)
	found, shown := readReplication(info)
	var refused redis.Error
	if !shown && (!errors.As(info.Err(), &refused) || s.ackAt(node) == AckAll) {
		return "", fmt.Errorf("INFO replication: %w", cmp.Or(info.Err(), err))
	}
	if s.facts.list != nil {
		listed, err := s.facts.list(ctx, node, strings.Fields(found.attached))
		if err != nil {
			return "", fmt.Errorf("the list of replicas: %w", err)
		}
		known.replicas.read(listed, found)
	}
	if known.saw(found) {
		s.observers.incarnationChanged()
	}
	if self != nil {
		if err := s.holdReplicas(ctx, node, known, found, self); err != nil {
			return "", fmt.Errorf("the replicas that it has had: %w", err)
		}
	}
	known.disk.Store(known.isOnDisk(settings))
	known.asked.Store(sinceStarted())
	return found.id, nil
}

// askSelf asks a server for its address, as it is on this connection, among others.
func askSelf(ctx context.Context, pipe redis.Pipeliner) *redis.StringCmd {
	self := redis.NewStringCmd(ctx, "client", "info")
	_ = pipe.Process(ctx, self)
	return self
}

var storeReplicas = redis.NewScript(scripts.StoreReplicas.Source)

// holdReplicas takes in the replicas that have to confirm at a server which no list has: those of a
// process before this one too.
func (s *Engine) holdReplicas(ctx context.Context, node *redis.Client, known *server, found replication, self *redis.StringCmd) error {
	held, err := s.noteReplicas(ctx, node, found, self, known.replicas.toHold(found))
	if err == nil {
		known.replicas.hold(held)
	}
	return err
}

// noteReplicas has a server note what is attached to it, and returns which have to confirm.
func (s *Engine) noteReplicas(
	ctx context.Context, node *redis.Client, found replication, self *redis.StringCmd, attached string,
) ([]string, error) {
	own := "-"
	if _, rest, is := strings.Cut(self.Val(), " laddr="); is {
		own, _, _ = strings.Cut(rest, " ")
	}
	run, before, err := runOf(ctx, node, found)
	if err != nil {
		return nil, err
	}
	held, err := storeReplicas.Run(ctx, node, []string{s.facts.key},
		cmp.Or(found.id, "-"), before, cmp.Or(run, "-"), own, attached).StringSlice()
	if err != nil {
		return nil, err
	}
	return held[1:], nil
}

// ForgetReplicas has a server that no list has forget which replicas it had, but for those that are
// attached now.
func (s *Engine) ForgetReplicas(ctx context.Context, node *redis.Client) error {
	if s.facts.list != nil {
		return nil
	}
	pipe := node.Pipeline()
	self, info := askSelf(ctx, pipe), askReplication(ctx)
	_ = pipe.Process(ctx, info) // it only takes the command in
	_, _ = pipe.Exec(ctx)       // each command has its own error
	found, shown := readReplication(info)
	if !shown {
		return info.Err()
	}
	if err := node.Del(ctx, s.facts.key).Err(); err != nil {
		return err
	}
	held, err := s.noteReplicas(ctx, node, found, self, found.attached)
	if err == nil {
		known := &s.facts.of(node).replicas
		known.anew(found)
		known.hold(held)
	}
	return err
}

// runOf asks a server for its run_id, and returns the id of before if it has followed that in this
// run: a master that starts from an RDB file shows what that names, and has read from no master.
func runOf(ctx context.Context, node *redis.Client, found replication) (run, before string, err error) {
	pipe := node.Pipeline()
	server, stats := pipe.Info(ctx, "server"), pipe.Info(ctx, "stats")
	if _, err := pipe.Exec(ctx); err != nil {
		return "", "", err
	}
	field := func(text, name string) string {
		_, rest, _ := strings.Cut(text, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	// Redis 6 does not count what it reads, and no file of it names a history before its own.
	read := field(stats.Val(), "total_net_repl_input_bytes")
	if read != "" && read != "0" || read == "" && strings.HasPrefix(field(server.Val(), "redis_version"), "6.") {
		before = found.before
	}
	return field(server.Val(), "run_id"), cmp.Or(before, "-"), nil
}

// onDisk are the settings under which Redis answers only once a write is on disk.
var onDisk = map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}

// isOnDisk reports whether a server has them. One that does not show its settings does not.
func (s *server) isOnDisk(settings map[string]*redis.MapStringStringCmd) bool {
	for name, got := range settings {
		values, err := got.Result()
		if _, refused := errors.AsType[redis.Error](err); refused {
			s.hidden.Store(true)
		}
		if err != nil || values[name] != onDisk[name] {
			return false
		}
	}
	return len(settings) > 0
}
