package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// A program that uses package lock sees how long its requests wait, and how many wait now, those
// at the gate within the process included. What does not wait, or waits by design, does not count.
func TestWaitsForLocksAreCountedInAnApplicationsRegistry(t *testing.T) {
	registry, counted := prometheus.NewRegistry(), metrics.NewStore("1.4.0")
	registry.MustRegister(counted.Collector())
	locks := lock.New(storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{counted.Observer()}}), lock.Config{})
	t.Cleanup(func() { expect.Error(t, "Close", locks.Close(), nil) })
	ctx := t.Context()
	first, err := locks.Acquire(ctx, "deploy", lock.Request{})
	expect.Error(t, "Acquire", err, nil)
	_, err = locks.TryAcquire(ctx, "deploy", lock.Request{})
	expect.Error(t, "TryAcquire", err, lock.ErrHeld)
	_, err = locks.Acquire(ctx, "deploy", lock.Request{Wait: time.Millisecond})
	expect.Error(t, "Acquire for a millisecond", err, lock.ErrHeld)
	for range 3 {
		go func() {
			if one, err := locks.Acquire(ctx, "deploy", lock.Request{}); err == nil {
				_ = one.Release(ctx)
			}
		}()
	}
	_, err = locks.Campaign(ctx, "leader", lock.Request{})
	expect.Error(t, "Campaign", err, nil)
	go func() { _, _ = locks.Campaign(ctx, "leader", lock.Request{}) }()
	waiting := func(n float64) {
		t.Helper()
		expect.Eventually(t, "the number of waiting requests", func() bool { return value(t, registry, "coatcheck_lock_waiting", "") == n })
	}
	waiting(3)
	if longest := value(t, registry, "coatcheck_lock_longest_wait_seconds", ""); longest <= 0 {
		t.Errorf("coatcheck_lock_longest_wait_seconds: got %v, want more than 0", longest)
	}
	expect.Error(t, "Release", first.Release(ctx), nil)
	waiting(0)
	expect.Equal(t, "waits that ended with the lock", value(t, registry, "coatcheck_lock_wait_seconds", "granted"), 4)
	expect.Equal(t, "waits that ended without it", value(t, registry, "coatcheck_lock_wait_seconds", "not_granted"), 1)
}

// A client that asks again with its token keeps its place in the queue: it has waited since it
// came.
func TestWaiterThatComesAgainHasWaitedAllTheWhile(t *testing.T) {
	registry, counted := prometheus.NewRegistry(), metrics.NewStore("1.4.0")
	registry.MustRegister(counted.Collector())
	locks := lock.New(storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{counted.Observer()}}), lock.Config{})
	t.Cleanup(func() { expect.Error(t, "Close", locks.Close(), nil) })
	_, err := locks.Grant(t.Context(), "deploy", lock.Request{TTL: time.Hour})
	expect.Error(t, "Grant", err, nil)
	ask := func(ctx context.Context) (ended chan struct{}) {
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = locks.Grant(ctx, "deploy", lock.Request{Token: "AAAAAAAAAAAAAAAAAAAAAA", KeepPlace: true})
		}()
		return ended
	}
	ctx, leave := context.WithCancel(t.Context())
	first := ask(ctx)
	expect.Eventually(t, "it stands in line", func() bool {
		info, err := locks.Get(t.Context(), "deploy")
		return err == nil && info.Queue == 1
	})
	stands := time.Now()
	time.Sleep(300 * time.Millisecond)
	leave()
	<-first
	ctx, leave = context.WithCancel(t.Context())
	again := ask(ctx)
	expect.Eventually(t, "it has waited since it came first", func() bool {
		least := time.Since(stands) - 2*time.Millisecond // the reply has whole ones
		return value(t, registry, "coatcheck_lock_longest_wait_seconds", "") >= least.Seconds()
	})
	leave()
	<-again
	expect.Equal(t, "the longest wait after it", value(t, registry, "coatcheck_lock_longest_wait_seconds", ""), 0)
}

// value is what a registry has of one series: of a histogram, how many it has observed.
func value(t *testing.T, registry *prometheus.Registry, name, outcome string) float64 {
	t.Helper()
	families, err := registry.Gather()
	expect.Error(t, "Gather", err, nil)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if family.GetName() != name || outcome != "" && series.GetLabel()[0].GetValue() != outcome {
				continue
			}
			if series.GetHistogram() != nil {
				return float64(series.GetHistogram().GetSampleCount())
			}
			return series.GetGauge().GetValue()
		}
	}
	return -1
}
