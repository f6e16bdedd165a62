//go:build check

package workerlease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

const layout = "41/2/6" // few worker ids and a short sequence: whatever overlaps collides

// process stamps ids with worker ids that it leases over a link of its own.
type process struct {
	link  *fault
	pools *workerlease.Pools
	wall  time.Duration // by how much its wall clock is wrong
	ids   []snowflake.ID
	terms int
}

// live holds and stamps, stops and starts again, until the context ends.
func (p *process) live(ctx context.Context, t *testing.T, rng *rand.Rand) {
	request := workerlease.Request{TTL: 700 * time.Millisecond, Shape: workerlease.Shape{Layout: layout, Epoch: snowflake.DefaultEpoch}}
	for ctx.Err() == nil {
		h := p.pools.Start(ctx, "p", request, workerlease.HoldOptions{
			Once: rng.IntN(2) == 0, Wall: func() time.Time { return time.Now().Round(0).Add(p.wall) },
			Observe: func(e holder.Event) {
				if e.Kind == holder.KindGranted {
					p.terms++
				}
			},
		})
		generator, err := snowflake.New(h, snowflake.Config{})
		if err != nil {
			t.Errorf("snowflake.New on a held worker id: %v", err)
			return
		}
		p.stamp(ctx, h, generator, time.Duration(500+rng.IntN(2500))*time.Millisecond)
		used := generator.Stop()
		if rng.IntN(3) == 0 {
			used = time.Time{} // it does not tell
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = h.Release(bounded, used)
		cancel()
	}
}

func (p *process) stamp(ctx context.Context, h *workerlease.Holder, generator *snowflake.Generator, span time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for ctx.Err() == nil {
		id, err := generator.Next(ctx)
		if err == nil {
			p.ids = append(p.ids, id)
			continue
		}
		select {
		case <-ctx.Done():
		case <-h.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// Many processes share few worker ids over faults of every kind. No two ids are equal.
func TestNoIDTwiceOverFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := workerlease.Config{Skew: 100 * time.Millisecond, LongestTTL: 700 * time.Millisecond}
	processes := make([]*process, 10)
	for i := range processes {
		link := newFault(t, server)
		store := storetest.Open(t, redisstore.Config{URL: link.URL(), Timeout: 300 * time.Millisecond})
		processes[i] = &process{link: link, pools: workerlease.New(store, config), wall: time.Duration(i-5) * time.Minute}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i, p := range processes {
		all.Go(func() { p.live(ctx, t, rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	rng := rand.New(rand.NewPCG(7, 7))
	faults := 0
	for pause := time.Second; faults < 60; pause = time.Duration(50+rng.IntN(250)) * time.Millisecond {
		time.Sleep(pause)
		faults++
		link := processes[rng.IntN(len(processes))].link
		switch n := rng.IntN(20); {
		case n == 0:
			_ = server.Client().FlushAll(ctx).Err()
		case n == 1:
			server.RestartEmpty()
		case n == 2:
			_ = server.Client().HDel(ctx, "coatcheck:worker:{p}", fmt.Sprint("s:", rng.IntN(4))).Err()
		case n == 3:
			server.Pause()
			time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			server.Resume()
		case n < 9:
			link.set(redistest.CutAfter, int64(1+rng.IntN(3)))
		case n < 13:
			link.set(redistest.CutBefore, int64(1+rng.IntN(3)))
		default:
			link.set(redistest.Swallow, int64(1+rng.IntN(8)))
		}
	}
	cancel()
	all.Wait()
	judge(t, processes, faults)
}

func judge(t *testing.T, processes []*process, faults int) {
	t.Helper()
	var ids []snowflake.ID
	terms, idle := 0, 0
	for _, p := range processes {
		if ids, terms = append(ids, p.ids...), terms+p.terms; len(p.ids) == 0 {
			idle++
		}
	}
	slices.Sort(ids)
	twice := 0
	for i := range ids[min(1, len(ids)):] {
		if ids[i] == ids[i+1] {
			twice++
		}
	}
	if twice > 0 {
		t.Errorf("%d of %d ids were stamped twice", twice, len(ids))
	}
	t.Logf("%d ids in %d terms over %d faults, %d processes had none", len(ids), terms, faults, idle)
	if len(ids) < 10_000 || terms < 10 || faults < 10 {
		t.Errorf("%d ids in %d terms over %d faults: too little to tell anything", len(ids), terms, faults)
	}
}
