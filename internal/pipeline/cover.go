package pipeline

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Continuity is what an engine knows of what would be lost.
type Continuity struct {
	Acks      int  // replicas that confirm each write; with AckAll the most of any master
	Promotion bool // a failover loses nothing that was confirmed
	Restart   bool // a restart loses nothing that was confirmed
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
		if _, err := s.learn(ctx, node, known); err != nil {
			return err
		}
		ack := s.ackAt(node)
		cover := known.cover(ack)
		mu.Lock()
		defer mu.Unlock()
		all.Promotion = all.Promotion && cover[0] == levelAll
		all.OnDisk = all.OnDisk && cover[1] == '1'
		all.Restart = all.Restart && cover[0] != levelNone && cover[1] == '1' && s.restarts == Auto
		if ack == AckAll {
			all.Acks = max(all.Acks, known.replicas.need())
		}
		return nil
	})
	return all, err
}

// The covers of scripts/lib/incarnation.lua, by their first digit.
const (
	levelNone      = '0'
	levelNoReplica = '1' // no replica was seen attached
	levelAll       = '2' // every server that can become master has what is confirmed
)

// cover is two digits, as in scripts/lib/incarnation.lua.
type cover [2]byte

// cover is that of a caller which so many replicas confirm, or AckAll.
func (s *server) cover(ack int) cover {
	level := byte(levelNoReplica)
	switch {
	case s.replicas.confirmedBy(ack):
		level = levelAll
	case s.replicas.need() > 0:
		level = levelNone
	}
	if s.disk.Load() {
		return cover{level, '1'}
	}
	return cover{level, '0'}
}

// ackAt is how many replicas of a server confirm what depends on the incarnation, or AckAll: what
// was confirmed by all once, all confirm from then on.
func (s *Engine) ackAt(node *redis.Client) int {
	if s.facts.of(node).strict.Load() {
		return AckAll
	}
	return s.ack
}

// obey has every replica confirm from now on, and where there is no list as many as have before.
func (s *server) obey(noted string) {
	if n, err := strconv.Atoi(noted); err == nil {
		s.replicas.note(n)
	}
	if !s.strict.Swap(true) {
		s.asked.Store(0) // which replicas it has had is not known yet
	}
}

// acksText is a number of replicas in words of scripts/lib/incarnation.lua.
func (s *server) acksText(ack int) string {
	switch {
	case ack != AckAll:
		return strconv.Itoa(ack)
	case s.replicas.listed():
		return "all"
	}
	return "all" + strconv.Itoa(s.replicas.need())
}

// noFacts are those of a call that depends on nothing that Redis may lose.
const noFacts = "auto 00 0 alone - -"

// factsFor is the last argument of a script that uses lib/incarnation. asked is an answer of ask.
func (s *Engine) factsFor(ctx context.Context, node *redis.Client, asked string) (string, error) {
	if s.restarts == Trust {
		return "trust 00 0 alone - -", nil
	}
	known, err := s.know(ctx, node)
	if err != nil {
		return "", err
	}
	if asked == "" {
		asked = "- -"
	}
	ack := s.ackAt(node)
	cover := known.cover(ack)
	return strings.Join([]string{string(s.restarts), string(cover[:]), known.acksText(ack), s.facts.set, asked}, " "), nil
}

// ask answers a script's {'ask', was, id}: whether the server of the incarnation id keeps what it
// confirms on disk, and whether another master of the cluster lives under the incarnation was.
func (s *Engine) ask(ctx context.Context, node *redis.Client, was string) (asked string, err error) {
	id, err := s.learn(ctx, node, s.facts.of(node))
	if err != nil {
		return "", err
	}
	peer := "-"
	if s.facts.set == inCluster {
		var mu sync.Mutex
		// A master that does not answer is none that lives under it.
		_ = s.nodes.each(ctx, func(ctx context.Context, other *redis.Client) error {
			info := askReplication(ctx)
			_ = other.Process(ctx, info)
			if found, ok := readReplication(info); ok && found.id == was && other != node {
				mu.Lock()
				defer mu.Unlock()
				peer = was
			}
			return nil
		})
	}
	return id + " " + peer, nil
}

const (
	inCluster = "cluster"
	alone     = "alone"
)
