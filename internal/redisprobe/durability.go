package redisprobe

import (
	"context"
	"errors"
	"fmt"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Durability names what a store can lose, and which rule of [redisstore.RestartsAuto] holds.
func Durability(ctx context.Context, store *redisstore.Store) string {
	switch {
	case store.Mode() == redisstore.ModeEmbedded:
		return "WARNING: in memory only; counters, tokens and leases are gone when this process ends. A Redis keeps and shares them: " +
			"`redis-server --appendonly yes --appendfsync always`, then --redis redis://localhost:6379"
	case onstore.Restarts(store) == redisstore.RestartsTrust:
		return "as this Redis keeps it: every restart and failover is believed (--restarts trust)"
	}
	holds, err := store.Continuity(ctx)
	if fact, is := errors.AsType[*redisstore.UnsuitableError](err); is {
		return "WARNING: writes are refused: " + fact.Fact
	}
	if err != nil {
		return "not known: this Redis does not answer"
	}
	return failover(store, holds) + "; " + restart(store, holds)
}

func failover(store *redisstore.Store, holds redisstore.Continuity) string {
	switch {
	case holds.Promotion && holds.Acks == 0:
		return "there is no failover to lose anything by: no replica could become master"
	case holds.Promotion:
		return fmt.Sprintf("a failover loses nothing: each write is confirmed by all %d replicas that can become master", holds.Acks)
	case store.Ack() == redisstore.AckAll && store.Mode() == redisstore.ModeCluster:
		return fmt.Sprintf("a failover and a moved slot cost a jump and a wait, and nothing comes twice: each write is confirmed by all %d "+
			"replicas of its master", holds.Acks)
	case store.Ack() == redisstore.AckAll:
		return "there is no failover to lose anything by: no replica is attached, and writes are refused while one is"
	case store.Ack() == 0:
		return "WARNING: with ack 0 a failover can lose confirmed writes and hand values out twice (--ack all waits for every replica)"
	}
	return fmt.Sprintf("a failover counts as a possible loss: each write is confirmed by %d replicas, and Redis does not say by which "+
		"(--ack all, with Sentinel)", holds.Acks)
}

func restart(store *redisstore.Store, holds redisstore.Continuity) string {
	switch {
	case holds.Restart:
		return "a restart loses nothing: every write is on disk before it counts"
	case onstore.Restarts(store) == redisstore.RestartsWait:
		return "a restart counts as a possible loss (--restarts wait)"
	case holds.OnDisk:
		return "a restart counts as a possible loss, since this is not one server without replicas"
	}
	return "a restart counts as a possible loss, since this Redis does not show appendonly yes with appendfsync always"
}
