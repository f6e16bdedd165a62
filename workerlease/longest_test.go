package workerlease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// allowing are the pools of an embedded store for processes that allow TTLs up to longest, in a
// bubble where an hour takes no time.
func allowing(t *testing.T, longest time.Duration, test func(t *testing.T, p pools)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		test(t, pools{workerlease.New(store, workerlease.Config{LongestTTL: longest}), store})
	})
}

// ofAny asks for a lease of whatever TTL the pool has.
func ofAny(bits int) workerlease.Request {
	request := of(bits)
	request.TTL = 0
	return request
}

// A caller that names no TTL has a default that is shorter than the windows that others have had.
// None of these is granted again while it is open.
func TestNothingIsGrantedAfterALossWhileTheLongestWindowCanBeOpen(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, p pools){
		"all": func(t *testing.T, p pools) { p.forget(t, "p") },
		"a restart from an older file, when the pool had a shorter ttl": func(t *testing.T, p pools) {
			p.forget(t, "p")
			const older = "redis.call('HSET', KEYS[1], 'pool', '41/10/12 1577836800000 0 1 1000 0 0 1 before 0 1000') return {'ok'}"
			raw(t, p.store, older, []string{onstore.Key(p.store, "worker", "p")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			allowing(t, 10*time.Minute, func(t *testing.T, p pools) {
				expect.NoError(t, "Create p", p.Create(t.Context(), "p", of(1).Shape, 10*time.Minute))
				open := p.acquire(t, "p", ofAny(1))
				time.Sleep(time.Second)
				lose(t, p)
				noticed := time.Now()
				for {
					_, err := p.Acquire(t.Context(), "p", ofAny(1))
					if !errors.Is(err, workerlease.ErrQuarantined) {
						expect.MustEqual(t, "error after the quarantine", err, nil)
						break
					}
					time.Sleep(redisstore.RetryAfter(err))
				}
				if took := time.Since(noticed); took < 10*time.Minute+time.Second {
					t.Errorf("granted %v after the loss, want 10m1s at the earliest: the window was open for %v then", took, open.NotAfter.Sub(noticed))
				}
			})
		})
	}
}

// A renewal that re-establishes a window in a quarantine makes it longer, and never shorter.
func TestRestoredWindowLengthensTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		brief, long := pools{workerlease.New(store, workerlease.Config{}), store}, pools{workerlease.New(store, workerlease.Config{LongestTTL: time.Hour}), store}
		expect.NoError(t, "Create p", long.Create(t.Context(), "p", of(1).Shape, time.Hour))
		lease := long.acquire(t, "p", ofAny(1))
		long.forget(t, "p")
		_, err := brief.Acquire(t.Context(), "p", ofAny(1))
		expect.Equal(t, "first refusal", waitOf(t, err), 31*time.Second)
		if _, err := long.Renew(t.Context(), lease, 0); err != nil {
			t.Fatalf("Renew: got error %v, want none", err)
		}
		_, err = long.Acquire(t.Context(), "p", ofAny(1))
		expect.Equal(t, "refusal after the renewal", waitOf(t, err), time.Hour+time.Second)
		_, err = brief.Acquire(t.Context(), "p", ofAny(1))
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
		wantText(t, err, "a longest ttl of 1h0m0s, and this process allows 30s")
	})
}

func waitOf(t *testing.T, err error) time.Duration {
	t.Helper()
	if !errors.Is(err, workerlease.ErrQuarantined) {
		t.Fatalf("got error %v, want ErrQuarantined", err)
	}
	return redisstore.RetryAfter(err)
}

func wantText(t *testing.T, err error, part string) {
	t.Helper()
	if !strings.Contains(err.Error(), part) {
		t.Errorf("got error %q, want %q in it", err, part)
	}
}

func TestTTLBeyondTheSettingsIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		config  workerlease.Config
		longest time.Duration
	}{
		"default": {workerlease.Config{}, workerlease.DefaultTTL},
		"set":     {workerlease.Config{LongestTTL: 10 * time.Minute}, 10 * time.Minute},
		"trust":   {workerlease.Config{NewPools: workerlease.NewPoolsTrust}, workerlease.MaxTTL},
		"both":    {workerlease.Config{NewPools: workerlease.NewPoolsTrust, LongestTTL: time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := workerlease.New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), row.config)
			request, shape := of(1), of(1).Shape
			for _, request.TTL = range []time.Duration{row.longest + time.Millisecond, workerlease.MinTTL - 1, -1} {
				_, acquired := p.Acquire(t.Context(), "p", request)
				created := p.Create(t.Context(), "p", shape, request.TTL)
				_, renewed := p.Renew(t.Context(), workerlease.Lease{Pool: "p", TTL: request.TTL}, 0)
				for what, err := range map[string]error{"Acquire": acquired, "Create": created, "Renew": renewed} {
					expect.Error(t, what, err, workerlease.ErrInvalid)
					wantText(t, err, fmt.Sprintf("ttl %v: 100ms to %v, the longest that the settings allow", request.TTL, row.longest))
				}
			}
			expect.Error(t, "Create with the longest", p.Create(t.Context(), "p", shape, row.longest), nil)
		})
	}
}

// Where nothing is lost, a process whose setting is shorter is told so before it does harm.
func TestProcessWithAShorterLongestTTLIsRefused(t *testing.T) {
	allowing(t, time.Minute, func(t *testing.T, p pools) {
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", of(2).Shape, time.Second), nil)
		brief, long := workerlease.New(p.store, workerlease.Config{}), workerlease.New(p.store, workerlease.Config{LongestTTL: time.Hour})
		_, err := brief.Acquire(t.Context(), "p", ofAny(2))
		expect.Error(t, "Acquire with a shorter longest ttl", err, workerlease.ErrOtherPool)
		kept := p.acquire(t, "p", ofAny(2))
		// it is heard of from now on
		if _, err := long.Acquire(t.Context(), "p", ofAny(2)); err != nil {
			t.Fatalf("Acquire p: got error %v, want none", err)
		}
		_, err = p.Acquire(t.Context(), "p", ofAny(2))
		wantText(t, err, "a longest ttl of 1h0m0s, and this process allows 1m0s")
		_, err = p.Renew(t.Context(), kept, 0)
		expect.Error(t, "Renew of what was granted before", err, nil)
		trusting := workerlease.New(p.store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		_, err = trusting.Acquire(t.Context(), "p", ofAny(2))
		expect.Error(t, "Acquire by a process that says nothing", err, nil)
	})
}
