package workerlease_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Two programs of which each believes that the pool has another layout: their ids would be equal if
// each stamped in its own, since a worker id of one is bits of the sequence of the other.
func TestIDsHaveTheLayoutOfThePoolWhateverTheProgramAsksFor(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		pools := workerlease.New(store, workerlease.Config{LongestTTL: time.Hour})
		is := workerlease.Shape{Layout: "41/2/3/9", Datacenter: 3, Epoch: time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)}
		expect.NoError(t, "declaring pool p", pools.Create(t.Context(), "p", is, time.Hour))
		seen := map[snowflake.ID]bool{}
		for _, layout := range []string{"41/10/12", "41/3/11", "32/10/21@s", "41/2/3/9"} {
			request := workerlease.Request{Shape: workerlease.Shape{Layout: layout, Epoch: snowflake.DefaultEpoch}}
			ids, err := pools.Stamp(t.Context(), "p", request, workerlease.HoldOptions{}, snowflake.Config{})
			if err != nil {
				t.Fatalf("Stamp with layout %s: %v", layout, err)
			}
			t.Cleanup(func() { _ = ids.Close(t.Context()) })
			lease, err := ids.Current()
			expect.NoError(t, "Current", err)
			stamped := make([]snowflake.ID, 700)
			expect.NoError(t, "stamping 700 ids", ids.Fill(t.Context(), stamped))
			got, epoch, _ := ids.Layout()
			expect.Equal(t, "layout of the ids of a program that asked for "+layout, got.String(), is.Layout)
			expect.Equal(t, "their epoch", epoch.Equal(is.Epoch), true)
			for _, id := range stamped {
				parts := got.Decode(id, epoch)
				if parts.Worker != lease.WorkerID || parts.Datacenter != 3 || time.Since(parts.Time).Abs() > time.Hour || seen[id] {
					t.Fatalf("id %d: got %+v, want worker id %d of datacenter 3, of now, and an id that was not stamped before", id, parts, lease.WorkerID)
				}
				seen[id] = true
			}
		}
	})
}

// A worker id with which nothing was stamped is free again from where its window began: the next
// holder of it waits for nothing.
func TestStamperThatStampedNothingGivesItsWorkerIDBackUnused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		request := workerlease.Request{TTL: time.Hour, Identity: "me", Shape: workerlease.Shape{Layout: "41/10/12", Epoch: snowflake.DefaultEpoch}}
		ids, err := pools.Stamp(t.Context(), "p", request, workerlease.HoldOptions{}, snowflake.Config{})
		expect.NoError(t, "Stamp", err)
		lease, err := ids.Current()
		expect.NoError(t, "Current", err)
		expect.Error(t, "Close", ids.Close(t.Context()), nil)
		_, err = ids.Next(t.Context())
		expect.Error(t, "Next after Close", err, snowflake.ErrStopped)
		again, err := pools.Acquire(t.Context(), "p", request)
		expect.NoError(t, "acquiring again", err)
		expect.Equal(t, "worker id of the same identity", again.WorkerID, lease.WorkerID)
		if again.NotBefore.After(again.Now) {
			t.Errorf("acquiring again: window from %v, want it to have begun at %v", again.NotBefore, again.Now)
		}
	})
}

// Counted from the year 1, as the zero time is, 41 bits were used up in the year 70: a pool of such
// a shape granted worker ids with which nothing could be stamped.
func TestShapeWithoutAnEpochHasTheDefaultOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		bare := workerlease.Shape{Layout: "41/10/12"}
		pin := map[string]workerlease.Pin{"pinned": {Shape: bare}}
		pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Pools: pin})
		expect.NoError(t, "Create without an epoch", pools.Create(t.Context(), "declared", bare, 0))
		for _, pool := range []string{"new", "declared", "pinned"} {
			for _, request := range []workerlease.Request{{Shape: bare}, {Shape: bare, WantEpoch: true}, {Shape: bare, NewShape: &bare}} {
				ids, err := pools.Stamp(t.Context(), pool, request, workerlease.HoldOptions{}, snowflake.Config{})
				if err != nil {
					t.Fatalf("Stamp of pool %s with %+v: %v", pool, request, err)
				}
				t.Cleanup(func() { _ = ids.Close(t.Context()) })
				if _, err := ids.Next(t.Context()); err != nil {
					t.Errorf("Next of pool %s with %+v: %v", pool, request, err)
				}
				_, epoch, _ := ids.Layout()
				expect.Equal(t, "epoch of pool "+pool, epoch.UTC(), snowflake.DefaultEpoch)
			}
		}
	})
}
