package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/scripts"
)

// ErrNotGone is the refusal of [Store.ReplicasGone] for a server that is not gone. Nothing was
// changed.
var ErrNotGone = fault.Refusal("redisstore: not gone")

// ReplicasGone says that servers which have confirmed writes under [AckAll] are gone for good, and
// that none of them becomes master: nobody waits for them from then on. places are their addresses,
// host:port; without any, all that are noted and are not attached now are gone. It returns those
// that were noted: for no other has a write waited.
//
// A server that is attached, or that Sentinel or the cluster still lists, is refused with
// [ErrNotGone]. Then it waits for 11 seconds, until no process notes them from a list that it has
// read before. If one of them becomes master all the same, values and worker ids come twice.
// Otherwise nothing counts as lost. To call it again is harmless, and is needed if another server
// becomes master at the same time.
func (s *Store) ReplicasGone(ctx context.Context, places ...string) (gone []string, err error) {
	for _, place := range places {
		if host, port, err := net.SplitHostPort(place); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%w: place %q has not the form host:port", ErrNotGone, place)
		}
	}
	if s.mode == ModeEmbedded {
		return nil, nil
	}
	before, err := s.leaving(ctx, places, nil)
	if err != nil || len(before) == 0 && len(places) == 0 {
		return nil, err
	}
	if s.mode != ModeStandalone {
		select {
		case <-time.After(pipeline.Forgotten):
		case <-ctx.Done():
			return nil, classify(ctx, "store replicas-gone", ctx.Err(), false, false)
		}
	}
	alone := s.WithAck(0) // else it waits for those that are gone
	after, err := s.leaving(ctx, places, func(ctx context.Context, node *redis.Client, gone []string) error {
		return alone.eachNote(ctx, node, scripts.StoreLeave, func(scripts.Reply) {}, strings.Join(gone, ","))
	})
	gone = slices.Concat(before, after)
	slices.Sort(gone)
	return slices.Compact(gone), err
}

// leaving returns the noted places that are gone, and does something at each master with all that
// are gone there.
func (s *Store) leaving(
	ctx context.Context, places []string, do func(ctx context.Context, node *redis.Client, gone []string) error,
) (gone []string, err error) {
	var mu sync.Mutex
	var refusal error
	err = s.engine.EachMaster(ctx, "store replicas-gone", func(ctx context.Context, node *redis.Client) error {
		here, noted, err := s.leavingAt(ctx, node, places)
		if err == nil && len(here) > 0 && do != nil {
			err = do(ctx, node, here)
		}
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, ErrNotGone) {
			refusal = err
		}
		for _, place := range here {
			if slices.Contains(noted, place) {
				gone = append(gone, place)
			}
		}
		return err
	})
	if refusal != nil {
		return nil, refusal
	}
	return gone, err
}

// leavingAt returns the places that are gone at a master, and those that are noted there. It
// refuses those that are not gone.
func (s *Store) leavingAt(ctx context.Context, node *redis.Client, places []string) (gone, noted []string, err error) {
	noted, err = s.notedAt(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	// after the notes: one that is noted from now on is not in them
	attached, listed, err := s.engine.Staying(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	gone = places
	if len(places) == 0 {
		gone = slices.DeleteFunc(slices.Clone(noted), func(place string) bool { return slices.Contains(attached, place) })
	}
	for _, place := range gone {
		switch {
		case slices.Contains(attached, place):
			return nil, nil, fmt.Errorf("%w: %s is attached, or the master itself", ErrNotGone, place)
		case slices.Contains(listed, place):
			return nil, nil, fmt.Errorf("%w: %s is still listed: first SENTINEL RESET at each sentinel, or CLUSTER FORGET at each node",
				ErrNotGone, place)
		}
	}
	return gone, noted, nil
}

// notedAt returns the places of all notes at a master.
func (s *Store) notedAt(ctx context.Context, node *redis.Client) (places []string, err error) {
	var mu sync.Mutex
	found := map[string]bool{}
	err = s.eachNote(ctx, node, scripts.StorePlaces, func(reply scripts.Reply) {
		mu.Lock()
		defer mu.Unlock()
		if reply.Word() == "noted" {
			for _, place := range reply.Values() {
				found[place] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(found)), err
}
