package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// Config is the settings of an engine.
type Config struct {
	Ack        int           // replicas that must confirm every write; 0 = none, or AckAll
	AckTimeout time.Duration // how long a write waits for them, at most
	Timeout    time.Duration // how long a call may take in all
	Restarts   Restarts      // how another incarnation of a server is judged
	Places     string        // begins the keys that have the places of a master's set
	Observers  []observe.Observer
	// makes of what go-redis answered the error that a caller is told: sent reports whether the
	// command's bytes were handed to a connection, harmless whether running it changes nothing
	Classify func(ctx context.Context, op string, err error, sent, harmless bool) error
}

// Engine makes the calls of a store to its servers. It has none before one of Serve, Failover
// and Cluster was called. It is safe for concurrent use then.
type Engine struct {
	nodes      nodes
	batchers   *batchers
	ack        int
	ackTimeout time.Duration
	timeout    time.Duration
	restarts   Restarts
	facts      *facts
	observers  observers
	classify   func(ctx context.Context, op string, err error, sent, harmless bool) error
}

// New returns an engine that has no servers yet.
func New(config Config) Engine {
	return Engine{
		batchers: newBatchers(), ack: config.Ack, ackTimeout: config.AckTimeout, timeout: config.Timeout,
		restarts: config.Restarts, facts: &facts{set: alone, key: config.Places}, observers: config.Observers, classify: config.Classify,
	}
}

// Of returns the engine of a store. Package redisstore sets it: the methods of a store show no
// internal type, and its calls that only domains have a use for are those of the engine.
var Of func(store any) *Engine

// Serve connects to one server.
func (s *Engine) Serve(options *redis.Options) { s.nodes = single{redis.NewClient(options)} }

// Failover connects to the master that sentinels name. list returns the places that they list, of a
// server with these first digits of its run_id.
func (s *Engine) Failover(options *redis.FailoverOptions, list func(ctx context.Context, run string) (Places, error)) {
	s.nodes = newFailover(options)
	s.facts.set = withSentinel
	s.facts.list = func(ctx context.Context, _ *redis.Client, run string) (Places, error) { return list(ctx, run) }
}

// Cluster connects to a cluster. The places are those that a node itself lists.
func (s *Engine) Cluster(options *redis.ClusterOptions) {
	s.nodes = newCluster(options)
	s.facts.set, s.facts.list = inCluster, placesOfCluster
}

// WithAck returns a view of the engine that waits for another number of replicas, or AckAll.
func (s *Engine) WithAck(replicas int) Engine {
	view := *s
	view.ack = replicas
	return view
}

// Ack is how many replicas confirm a write before it counts, or AckAll.
func (s *Engine) Ack() int { return s.ack }

// Timeout is how long a call takes at most.
func (s *Engine) Timeout() time.Duration { return s.timeout }

// Restarts is how another incarnation of a server is judged.
func (s *Engine) Restarts() Restarts { return s.restarts }

// EachMaster calls f with a client of every master, in a cluster of several at once. The error says
// what was done.
func (s *Engine) EachMaster(ctx context.Context, what string, f func(context.Context, *redis.Client) error) error {
	if err := s.nodes.each(ctx, f); err != nil {
		return s.classify(ctx, what, err, false, true)
	}
	return nil
}

// Ping asks every master for the time, without which no script runs. After an error it reads the
// topology again.
func (s *Engine) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.nodes.each(ctx, func(ctx context.Context, node *redis.Client) error { return node.Time(ctx).Err() })
	if err == nil {
		return nil
	}
	s.nodes.suspect(ctx, err)
	return s.classify(ctx, "ping", err, false, true)
}

// PoolStats are the connections to all servers.
func (s *Engine) PoolStats() *redis.PoolStats { return s.nodes.PoolStats() }

// Close ends the connections, and waits for the goroutines that send.
func (s *Engine) Close() error {
	err := s.nodes.Close()
	s.batchers.senders.close()
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}

// ShortfallError is the error of a write that fewer replicas than asked confirmed in time.
type ShortfallError struct {
	Want, Got int
	Missing   string // addresses of the others, where all have to confirm
}

// Error reports how many replicas were asked for and how many confirmed.
func (s *ShortfallError) Error() string {
	text := fmt.Sprintf("acknowledged by %d of %d replicas", s.Got, s.Want)
	if s.Missing != "" {
		text += ", and not by " + s.Missing
	}
	return text
}
