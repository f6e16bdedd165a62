package pipeline

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Continuity is what an engine knows of what would be lost.
type Continuity struct {
	Acks      int  // replicas that confirm each write; with AckAll the most of any master
	Promotion bool // a failover costs nothing
	Restart   bool // a restart costs nothing
	OnDisk    bool // what is confirmed is on disk, at the master
}

// Continuity asks every master. What holds, holds at all of them.
func (s *Engine) Continuity(ctx context.Context) (Continuity, error) {
	all := Continuity{Acks: max(s.ack, 0), Promotion: true, Restart: true, OnDisk: true}
	if s.restarts == Trust {
		return all, nil
	}
	var mu sync.Mutex
	err := s.nodes.each(ctx, func(ctx context.Context, node *redis.Client) error {
		known := s.facts.of(node)
		if err := s.learn(ctx, node, known); err != nil {
			return err
		}
		strict, disk := s.ackAt(node) == AckAll, known.disk.Load()
		mu.Lock()
		defer mu.Unlock()
		all.Promotion = all.Promotion && strict && s.facts.set == withSentinel
		all.OnDisk = all.OnDisk && disk
		all.Restart = all.Restart && disk && known.bare.Load() && s.facts.set == alone && s.restarts == Auto
		if strict {
			all.Acks = max(all.Acks, known.places.others())
		}
		return nil
	})
	return all, err
}

// The first digits of the covers of scripts/lib/word.lua.
const (
	levelSome      = '0'
	levelNoReplica = '1'
	levelAll       = '2'
)

func (s *server) diskDigit() byte {
	if s.disk.Load() {
		return '1'
	}
	return '0'
}

// ackAt is how many replicas of a server confirm what depends on the incarnation, or AckAll: where
// a word says that all places have confirmed, all confirm from then on.
func (s *Engine) ackAt(node *redis.Client) int {
	if s.facts.of(node).strict.Load() {
		return AckAll
	}
	return s.ack
}

// noFacts are those of a call that depends on nothing that Redis may lose.
const noFacts = "auto 0 some alone - -"

// factsFor is the last argument of a script that uses lib/incarnation.
func (s *Engine) factsFor(ctx context.Context, node *redis.Client) (string, error) {
	if s.restarts == Trust {
		return "trust 0 some alone - -", nil
	}
	if err := s.know(ctx, node); err != nil {
		return "", err
	}
	return s.factsNow(node), nil
}

// factsNow is the same by what is known.
func (s *Engine) factsNow(node *redis.Client) string {
	known, ack, list, id := s.facts.of(node), "some", "-", "-"
	if s.ackAt(node) == AckAll {
		ack = "all"
		if s.facts.list != nil {
			list = known.places.text()
		}
	}
	if asked := known.id.Load(); asked != nil && *asked != "" {
		id = *asked
	}
	return factsText(s.restarts, known.diskDigit(), ack, s.facts.set, id, list)
}

func factsText(restarts Restarts, disk byte, ack, set, id, list string) string {
	return strings.Join([]string{string(restarts), string(disk), ack, set, id, list}, " ")
}

// settle does what a script wants before it decides. See questionOf.
func (s *Engine) settle(ctx context.Context, node *redis.Client, reply []string) error {
	known := s.facts.of(node)
	switch reply[0] {
	case "places":
		known.places.add(reply[1:])
		return nil
	case "all":
		if known.strict.Swap(true) && s.facts.list != nil {
			return nil
		}
	}
	return s.learn(ctx, node, known)
}

// The kinds of sets.
const (
	alone        = "alone"
	withSentinel = "sentinel"
	inCluster    = "cluster"
)
