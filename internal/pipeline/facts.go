package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/scripts"
)

// AckAll waits for every replica that can become master: those that Sentinel or the cluster lists,
// unreachable ones included.
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

// The ages from which what is known of a server is asked for again: beside the calls, before the
// next call, and beside the calls while a replica does not confirm.
const (
	refreshFacts = 5 * time.Second
	oldFacts     = 2 * refreshFacts
	refreshShort = 500 * time.Millisecond
)

// Forgotten is after how long no process notes a place any more that has left the lists.
const Forgotten = oldFacts + time.Second

// facts is what an engine knows of its servers beside what scripts see. It is safe for concurrent
// use.
type facts struct {
	servers sync.Map // *redis.Client to *server
	// list returns the places of a server's set; run is the first digits of its run_id. nil: there
	// is no list.
	list func(ctx context.Context, node *redis.Client, run string) (Places, error)
	set  string // alone | sentinel | cluster
	key  string // with a name has a word of lib/incarnation for each master
}

// server is what is known of one server.
type server struct {
	learning sync.Mutex

	places places
	alone  bool
	disk   atomic.Bool  // what it confirms is on disk
	bare   atomic.Bool  // no replica is attached
	asked  atomic.Int64 // when, in nanoseconds of this process's clock; 0 = never
	asking atomic.Bool
	failed atomic.Int64           // when it could not be asked again, likewise
	turn   chan struct{}          // holds one that asks while nothing is known
	strict atomic.Bool            // every place has to confirm what depends on the incarnation
	short  atomic.Bool            // a place did not confirm the last write
	hidden atomic.Bool            // it refuses to show its settings, and is not asked any more
	id     atomic.Pointer[string] // the incarnation that was asked; nil = none was
	last   atomic.Pointer[string] // the incarnation that was seen last
}

var started = time.Now()

func (f *facts) of(node *redis.Client) *server {
	if found, is := f.servers.Load(node); is {
		return found.(*server)
	}
	fresh := &server{turn: make(chan struct{}, 1), alone: f.set == alone}
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

// know asks a server for what scripts cannot see, unless that is known and new enough. What was
// known before stays in use while it is asked again beside calls, and where it cannot be.
func (s *Engine) know(ctx context.Context, node *redis.Client) error {
	known := s.facts.of(node)
	if known.isOld() {
		return s.begin(ctx, node, known)
	}
	s.refresh(node, known)
	return nil
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
	err := s.learn(ctx, node, known)
	if err != nil && known.asked.Load() != 0 {
		known.failed.Store(sinceStarted())
		return nil
	}
	return err
}

// refresh asks a server again, beside the call, if what is known of it is old.
func (s *Engine) refresh(node *redis.Client, known *server) {
	age := refreshFacts
	if known.short.Load() { // a place may have left the list
		age = refreshShort
	}
	if sinceStarted()-known.asked.Load() <= int64(age) || !known.asking.CompareAndSwap(false, true) {
		return
	}
	s.batchers.senders.start(func() {
		defer known.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		_ = s.learn(ctx, node, known) // what was known stays, and is asked for again
	})
}

// learn asks a server and the list of its set.
func (s *Engine) learn(ctx context.Context, node *redis.Client, known *server) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	known.learning.Lock()
	defer known.learning.Unlock()
	pipe := node.Pipeline()
	settings := map[string]*redis.MapStringStringCmd{}
	for name := range onDisk {
		if !known.hidden.Load() {
			settings[name] = pipe.ConfigGet(ctx, name)
		}
	}
	info, about, keys := askReplication(ctx), pipe.Info(ctx, "server"), pipe.Info(ctx, "keydb")
	_ = pipe.Process(ctx, info) // it only takes the command in
	_, err := pipe.Exec(ctx)
	found, shown := readReplication(info)
	all := s.ackAt(node) == AckAll
	var refused redis.Error
	if !shown && (!errors.As(info.Err(), &refused) || all) {
		return fmt.Errorf("INFO replication: %w", cmp.Or(info.Err(), err))
	}
	if fact := keyDB(keys.Val()); fact != "" && s.ackAt(node) != 0 {
		return &UnsuitableError{Fact: fact}
	}
	switch {
	case all && s.facts.list == nil && len(found.links) > 0:
		return &UnsuitableError{Fact: "a replica is attached, and no list says which there are: --ack with a number, or the URL of " +
			"Sentinel or the cluster"}
	case all && s.facts.list == nil:
		known.places.forget()
	case all:
		run := infoField(about.Val(), "run_id")
		run = run[:min(len(run), runDigits)]
		listed, err := s.facts.list(ctx, node, run)
		if err != nil {
			return fmt.Errorf("the list of replicas: %w", err)
		}
		fresh, came := known.places.next(listed, run, found.links)
		if err := s.notePlaces(ctx, node, found.id, listed.Slot, fresh); err != nil {
			return fmt.Errorf("the replicas that it has had: %w", err)
		}
		known.places.replace(fresh, came)
	}
	known.disk.Store(known.isOnDisk(settings))
	known.bare.Store(len(found.links) == 0)
	known.id.Store(&found.id)
	s.saw(known, found.id)
	known.asked.Store(sinceStarted())
	return nil
}

// runDigits is how many digits of a run_id a word has.
const runDigits = 16

// keyDB returns why replicas of KeyDB confirm nothing. Another engine has nothing to say to INFO
// keydb.
func keyDB(section string) string {
	if infoField(section, "mvcc_depth") == "" {
		return ""
	}
	return "KeyDB answers nothing that follows WAIT on a connection, so no replica can confirm a write"
}

var incarnation = sync.OnceValue(func() *redis.Script { return redis.NewScript(scripts.Incarnation.Text().Source) })

// saw tells the observers of another incarnation than the last.
func (s *Engine) saw(known *server, id string) {
	if last := known.last.Swap(&id); last != nil && *last != id {
		s.observers.incarnationChanged()
	}
}

// notePlaces has a server note the places that have to confirm, and adds those that it has noted
// before: a process that starts while a replica is unreachable learns of it here. Scripts for
// tokens and locks note no word, and read none.
func (s *Engine) notePlaces(ctx context.Context, node *redis.Client, id string, slot int, fresh *places) error {
	name := "store"
	if s.facts.set == inCluster {
		name = redisconn.SlotTags()[slot]
	}
	key := []string{s.facts.key + ":{" + name + "}"}
	for range asks {
		facts := factsText(s.restarts, '0', "all", s.facts.set, id, fresh.text())
		reply, err := incarnation().Run(ctx, node, key, facts).StringSlice()
		switch {
		case err != nil:
			return err
		case reply[0] == "ask":
			return errUnsettled
		case reply[0] != "places":
			return nil
		}
		fresh.add(reply[1:])
	}
	return errUnsettled
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
