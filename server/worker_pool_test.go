package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestWorkerPoolsOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Millisecond, LongestTTL: time.Hour}})
		t.Run("a pool is declared once and is what it was declared as", s.poolDeclared)
		t.Run("a request for another pool than there is is refused", s.poolMismatch)
		t.Run("pools are listed page by page", s.poolList)
		t.Run("a release says until when its id was used", s.usedUntil)
		t.Run("an unknown pool waits out a quarantine", s.poolQuarantine)
	})
}

// endOf is when a layout has no timestamps left.
func endOf(layout string, epoch time.Time) time.Time {
	return snowflake.MustLayout(layout).Lasts(epoch)
}

func (s *service) poolDeclared(t *testing.T) {
	const body = `{"layout":"41/5/5/12","epoch":"2024-02-29T12:00:00.125+02:00","datacenter":3,"ttl_ms":3600000}`
	a := s.do(t, "PUT", "/worker/declared", body)
	pool := decode[api.WorkerPool](t, a, 201)
	want := api.WorkerPool{
		Pool: "declared", Layout: "41/5/5/12", Epoch: api.At(time.Date(2024, 2, 29, 10, 0, 0, 125_000_000, time.UTC)), Datacenter: 3, Size: 32, TTLMs: 3_600_000,
	}
	want.EndsAt = api.At(endOf(want.Layout, want.Epoch.Time))
	expect.Equal(t, a.asked, pool, want)
	a.wantHeader(t, "Location", "/worker/declared")
	a.wantHeader(t, "Cache-Control", "no-store")
	for _, again := range []string{body, "", `{"layout":"41/10/12"}`} {
		wantDetail(t, s.do(t, "PUT", "/worker/declared", again), api.PoolExists, "41/5/5/12", "2024-02-29T10:00:00", "datacenter 3", "1h0m0s")
	}
	// at once: it is known to be new
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/declared", "")
	expect.Equal(t, "POST /worker/declared", lease, api.WorkerLease{
		WorkerID: lease.WorkerID, Lease: lease.Lease, Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter, ServerTime: lease.ServerTime,
		TTLMs: 3_600_000, RenewEveryMs: 1_200_000, Layout: want.Layout, Epoch: want.Epoch, Datacenter: 3,
	})
	checkProblem(t, s.do(t, "PUT", "/worker/declared", body), api.PoolExists)
	ring := must[api.WorkerRing](t, s, 200, "GET", "/worker/declared?n=1", "")
	want.Used, want.Held = 1, 1
	expect.Equal(t, "GET /worker/declared?n=1", ring.WorkerPool, want)
	plain := must[api.WorkerPool](t, s, 201, "PUT", "/worker/plain", "")
	expect.Equal(t, "PUT /worker/plain", plain, api.WorkerPool{Pool: "plain", Layout: "41/10/12", Epoch: api.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), Size: 1024, TTLMs: 30_000,
		EndsAt: api.At(endOf("41/10/12", snowflake.DefaultEpoch))})
}

func (s *service) poolMismatch(t *testing.T) {
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/fixed", `{"layout":"41/5/5/12","datacenter":3,"ttl_ms":60000}`)
	for _, body := range []string{
		`{"layout":"41/10/12"}`, `{"layout":"41/5/5/12@s"}`, `{"epoch":"2021-01-01T00:00:00Z"}`, `{"layout":"41/5/5/12","datacenter":4}`, `{"layout":"41/5/5/12","datacenter":0}`,
		`{"ttl_ms":30000}`, `{"ttl_ms":60001}`, `{"layout":"41/5/5/12","datacenter":3,"ttl_ms":60000,"epoch":"2020-01-01T00:00:00.001Z"}`,
	} {
		wantDetail(t, s.do(t, "POST", "/worker/fixed", body), api.LayoutMismatch, "layout 41/5/5/12", "datacenter 3", "ttl 1m0s")
	}
	for _, body := range []string{
		"", `{"layout":null,"ttl_ms":null,"epoch":null,"datacenter":null}`, `{"layout":"41/05/5/12"}`, `{"ttl_ms":60000}`,
		`{"layout":"41/5/5/12","datacenter":3,"ttl_ms":60000,"epoch":"2020-01-01T01:00:00+01:00","identity":"me"}`,
	} {
		must[api.WorkerLease](t, s, 201, "POST", "/worker/fixed", body)
	}
}

func (s *service) poolList(t *testing.T) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("list.%c", 'a'+i))
		must[api.WorkerPool](t, s, 201, "PUT", "/worker/"+names[i], `{"layout":"41/5/7","ttl_ms":1000}`)
	}
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/list", "") // before all that it begins
	for n := 1; n <= 13; n++ {
		var seen []string
		cursor := ""
		for {
			page := must[api.WorkerPools](t, s, 200, "GET", fmt.Sprintf("/worker?prefix=list.&n=%d%s", n, cursor), "")
			if page.Pools == nil || len(page.Pools) > n {
				t.Fatalf("GET /worker?prefix=list.&n=%d%s: got %+v, want a list of %d at most", n, cursor, page.Pools, n)
			}
			for _, pool := range page.Pools {
				expect.Equal(t, "GET /worker", pool, api.WorkerPool{Pool: pool.Pool, Layout: "41/5/7", Epoch: pool.Epoch, Size: 32, TTLMs: 1000, EndsAt: api.At(endOf("41/5/7", pool.Epoch.Time))})
				seen = append(seen, pool.Pool)
			}
			if page.Next == "" {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(page.Next)
		}
		expect.Equal(t, fmt.Sprintf("GET /worker?prefix=list.&n=%d and the pages after it", n), seen, names)
	}
	page := must[api.WorkerPools](t, s, 200, "GET", "/worker?prefix=none", "")
	expect.Equal(t, "GET /worker?prefix=none", page, api.WorkerPools{Pools: []api.WorkerPool{}})
	all := must[api.WorkerPools](t, s, 200, "GET", "/worker?n=1000", "").Pools
	if !slices.ContainsFunc(all, func(pool api.WorkerPool) bool {
		return pool.Pool == "declared" && pool.Used == 1 && pool.Datacenter == 3
	}) {
		t.Errorf("GET /worker?n=1000: got %+v, want declared to be among them, with one worker id used and datacenter 3", all)
	}
}

func (s *service) usedUntil(t *testing.T) {
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/used", `{"ttl_ms":3600000}`)
	for i, row := range []struct {
		used func(lease api.WorkerLease) string
		want func(lease api.WorkerLease, slot api.WorkerSlot) bool
	}{
		{ // where it was
			func(lease api.WorkerLease) string {
				return lease.NotBefore.Add(7 * time.Millisecond).Format(time.RFC3339Nano)
			},
			func(lease api.WorkerLease, slot api.WorkerSlot) bool {
				return slot.NotAfter.Equal(lease.NotBefore.Add(7 * time.Millisecond))
			},
		},
		{ // a part of a millisecond counts as all of it
			func(lease api.WorkerLease) string {
				return lease.NotBefore.Add(7*time.Millisecond + 1).Format(time.RFC3339Nano)
			},
			func(lease api.WorkerLease, slot api.WorkerSlot) bool {
				return slot.NotAfter.Equal(lease.NotBefore.Add(8 * time.Millisecond))
			},
		},
		{ // never before its window, nor after it
			func(api.WorkerLease) string { return "1970-01-01T00:00:00Z" },
			func(lease api.WorkerLease, slot api.WorkerSlot) bool {
				return slot.NotAfter.Equal(lease.NotBefore.Time)
			},
		},
		{
			func(api.WorkerLease) string { return "2999-01-01T01:00:00+01:00" },
			func(lease api.WorkerLease, slot api.WorkerSlot) bool { return slot.NotAfter.Equal(lease.NotAfter.Time) },
		},
		{ // not told: a second is enough for every generator's lead
			func(api.WorkerLease) string { return "" },
			func(lease api.WorkerLease, slot api.WorkerSlot) bool {
				return slot.NotAfter.Sub(lease.NotBefore.Time) >= time.Second && slot.NotAfter.Before(lease.NotAfter.Time)
			},
		},
	} {
		lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/used", "")
		path := fmt.Sprintf("/worker/used/%d", lease.WorkerID)
		if text := row.used(lease); text != "" {
			path += "?used_until=" + url.QueryEscape(text)
		}
		must[nothing](t, s, 204, "DELETE", path, "", "Lease-Token: "+lease.Lease)
		// the first word counts
		must[nothing](t, s, 204, "DELETE", fmt.Sprintf("/worker/used/%d", lease.WorkerID), "", "Lease-Token: "+lease.Lease)
		slot := must[api.WorkerRing](t, s, 200, "GET", fmt.Sprintf("/worker/used?n=1&cursor=%d", lease.WorkerID), "").Slots[0]
		if slot.State != "free" || !row.want(lease, slot) {
			t.Errorf("row %d: DELETE %s of a window from %v until %v: got %+v, want it free, with a window that ends where the row says", i, path, lease.NotBefore, lease.NotAfter, slot)
		}
	}
}

func (s *service) poolQuarantine(t *testing.T) {
	a := s.do(t, "POST", "/worker/unknown", `{"ttl_ms":3600000}`)
	wantDetail(t, a, api.PoolQuarantined, "the pool is new to this Redis", "coatcheck worker create unknown")
	a.wantRetryAfter(t, 1, 3601)
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/unknown", `{"ttl_ms":3600000}`)
	must[api.WorkerLease](t, s, 201, "POST", "/worker/unknown", "")

	wantDetail(t, s.do(t, "POST", "/worker/unknown", `{"ttl_ms":3600001}`), api.InvalidRequest, "ttl_ms", "3600000", "--worker-longest-ttl")
	wantDetail(t, s.do(t, "PUT", "/worker/other", `{"ttl_ms":3600001}`), api.InvalidRequest, "ttl_ms", "3600000", "--worker-longest-ttl")
}

// What a holder has to tell so that its lease is written down anew after Redis has lost it.
func proofOf(lease api.WorkerLease) map[string]any {
	return map[string]any{"not_after": lease.NotAfter, "fence": lease.Fence, "identity": lease.Identity, "layout": lease.Layout, "epoch": lease.Epoch, "datacenter": lease.Datacenter}
}

func text(t testing.TB, body map[string]any) string {
	t.Helper()
	encoded, err := json.Marshal(body)
	expect.NoError(t, fmt.Sprintf("writing %v", body), err)
	return string(encoded)
}

func TestLeaseThatRedisLostIsWrittenAnewOnItsProofAloneAndNothingIsGrantedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, newPools := range []workerlease.NewPools{workerlease.NewPoolsWait, workerlease.NewPoolsTrust} {
		t.Run(string(newPools), func(t *testing.T) {
			redis := redistest.Start(t)
			s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Workers: workerlease.Config{NewPools: newPools, LongestTTL: time.Hour}})
			must[api.WorkerPool](t, s, 201, "PUT", "/worker/p", `{"ttl_ms":3600000,"layout":"41/5/5/12","datacenter":7}`)
			kept := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", `{"identity":"orders-0"}`)
			bare := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", "")
			expect.NoError(t, "FLUSHALL", redis.Client().FlushAll(t.Context()).Err())

			checkProblem(t, s.do(t, "PUT", "/worker/p/1", "", "Lease-Token: "+bare.Lease), api.LeaseLost)
			for _, missing := range []string{"not_after", "fence", "layout", "epoch"} {
				part := proofOf(bare)
				delete(part, missing)
				checkProblem(t, s.do(t, "PUT", "/worker/p/1", text(t, part), "Lease-Token: "+bare.Lease), api.LeaseLost)
			}
			for field, value := range map[string]any{"not_after": bare.NotBefore, "fence": bare.Fence + 1e9} {
				forged := maps.Clone(proofOf(bare))
				forged[field] = value
				checkProblem(t, s.do(t, "PUT", "/worker/p/1", text(t, forged), "Lease-Token: "+bare.Lease), api.LeaseLost)
			}

			proof := proofOf(kept)
			proof["ttl_ms"] = kept.TTLMs
			renewed := must[api.WorkerRenewed](t, s, 200, "PUT", "/worker/p/0", text(t, proof), "Lease-Token: "+kept.Lease)
			expect.Equal(t, "PUT /worker/p/0 with all of its proof: worker id", renewed.WorkerID, 0)
			expect.Equal(t, "PUT /worker/p/0 with all of its proof: ttl_ms", renewed.TTLMs, 3_600_000)
			if renewed.NotAfter.Before(kept.NotAfter.Time) {
				t.Errorf("PUT /worker/p/0 with all of its proof: got a window until %v, want it to end no earlier than before, at %v", renewed.NotAfter, kept.NotAfter)
			}
			ring := must[api.WorkerRing](t, s, 200, "GET", "/worker/p?n=2", "")
			want := api.WorkerSlot{WorkerID: 0, State: "held", Holder: "orders-0", Fence: kept.Fence, NotBefore: kept.NotBefore, NotAfter: renewed.NotAfter}
			expect.Equal(t, "GET /worker/p?n=2 after the proof: the first slot", ring.Slots[0], want)
			expect.Equal(t, "GET /worker/p?n=2 after the proof", ring.WorkerPool, api.WorkerPool{
				Pool: "p", Layout: "41/5/5/12", Epoch: kept.Epoch, Datacenter: 7, Size: 32, Used: 1, Held: 1, TTLMs: 3_600_000, QuarantinedMs: ring.QuarantinedMs,
				EndsAt: api.At(endOf("41/5/5/12", kept.Epoch.Time)), Reason: fault.Missing.Happened(time.Time{}),
			})
			// it is there again
			must[api.WorkerRenewed](t, s, 200, "PUT", "/worker/p/0", "", "Lease-Token: "+kept.Lease)

			if newPools == workerlease.NewPoolsTrust {
				// who trusts that an unknown pool is new takes the loss of all of it for that
				return
			}
			wantBetween(t, "GET /worker/p?n=2: quarantined_ms", ring.QuarantinedMs, 1, 3_601_000)
			a := s.do(t, "POST", "/worker/p", "")
			checkProblem(t, a, api.PoolQuarantined)
			a.wantRetryAfter(t, 1, 3601)
		})
	}
}

// The holder of a worker id may be stamping with it while Redis has forgotten all: none is granted
// one until its window has ended.
func TestAfterARestartWithoutDataNobodyGetsTheWorkerIDThatIsInUse(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Millisecond, LongestTTL: 2 * time.Second}})
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/p", `{"ttl_ms":2000}`)
	first := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", "")
	redis.RestartEmpty()
	s.wantReady(t)
	var second api.WorkerLease
	expect.Eventually(t, "the quarantine is over", func() bool {
		a := s.do(t, "POST", "/worker/p", `{"ttl_ms":2000}`)
		if a.status == 201 {
			second = decode[api.WorkerLease](t, a, 201)
		} else {
			checkProblem(t, a, api.PoolQuarantined)
		}
		return a.status == 201
	})
	if second.NotBefore.Before(first.NotAfter.Time) {
		t.Errorf("windows of worker id %d overlap: %v to %v, and from %v", second.WorkerID, first.NotBefore, first.NotAfter, second.NotBefore)
	}
}

// What a pool looks like is up to those who may declare pools, and to the settings.
func TestWhoAsksFirstWithRoleUseDoesNotShapeAPool(t *testing.T) {
	t.Parallel()
	east := workerlease.Pin{Shape: workerlease.Shape{Layout: "41/5/5/12", Datacenter: 3, Epoch: time.UnixMilli(1700000000000).UTC()}, TTL: time.Minute}
	g := serveKeyed(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust, Pools: map[string]workerlease.Pin{"pinned": east}}}, nil)
	for _, body := range []string{`{"layout":"41/5/7"}`, `{"epoch":"2024-02-29T00:00:00Z"}`, `{"layout":"41/5/5/12","datacenter":3}`} {
		wantDetail(t, g.as(t, "use", "POST", "/worker/new", body), api.LayoutMismatch, "it is not there", "41/10/12")
	}
	lease := decode[api.WorkerLease](t, g.as(t, "use", "POST", "/worker/new", `{"layout":"41/10/12"}`), 201)
	expect.Equal(t, "layout that a user gets", lease.Layout, "41/10/12")
	decode[api.WorkerLease](t, g.as(t, "admin", "POST", "/worker/shaped", `{"layout":"41/5/7"}`), 201)
	lease = decode[api.WorkerLease](t, g.as(t, "use", "POST", "/worker/shaped", `{"layout":"41/5/7"}`), 201)
	expect.Equal(t, "layout of a pool that an administrator shaped", lease.Layout, "41/5/7")

	lease = decode[api.WorkerLease](t, g.as(t, "use", "POST", "/worker/pinned", ""), 201)
	expect.Equal(t, "the pinned pool", []any{lease.Layout, lease.Datacenter, lease.Epoch.Time, lease.TTLMs}, []any{"41/5/5/12", 3, east.Shape.Epoch, int64(60_000)})
	for _, who := range []string{"use", "admin"} {
		for _, body := range []string{`{"layout":"41/10/12"}`, `{"datacenter":4}`, `{"epoch":"2024-02-29T00:00:00Z"}`, `{"ttl_ms":30000}`} {
			checkProblem(t, g.as(t, who, "POST", "/worker/pinned", body), api.LayoutMismatch)
		}
	}
	checkProblem(t, g.as(t, "admin", "PUT", "/worker/pinned", `{"layout":"41/10/12"}`), api.LayoutMismatch)
	checkProblem(t, g.as(t, "admin", "PUT", "/worker/pinned", ""), api.PoolExists)

	// The administrator changes what was fixed by the first who asked, once nothing of it is in
	// use.
	a := g.as(t, "admin", "PUT", "/worker/new?replace=true", `{"layout":"41/5/7"}`)
	checkProblem(t, a, api.PoolExists)
	a.wantRetryAfter(t, 1, 31)
	wantDetail(t, g.as(t, "admin", "PUT", "/worker/new?replace=yes", ""), api.InvalidRequest, "replace", "true or false")
	checkProblem(t, g.as(t, "use", "PUT", "/worker/new?replace=true", `{"layout":"41/5/7"}`), api.Forbidden)
}

// A TTL of a tenth of a second on a pool of seconds made most ids wait in vain: it is refused, with
// the field and its bound.
func TestPoolOfSecondsRefusesATTLThatHoldsNone(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	for _, method := range []string{"POST", "PUT"} {
		for _, ttl := range []int{100, 2999} {
			a := s.do(t, method, "/worker/slow", fmt.Sprintf(`{"layout":"32/10/21@s","ttl_ms":%d}`, ttl))
			wantField(t, a, api.InvalidRequest, "ttl_ms", "3000 to")
		}
	}
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/slow", `{"layout":"32/10/21@s","ttl_ms":3000}`)
	// its TTL is another
	checkProblem(t, s.do(t, "POST", "/worker/slow", `{"ttl_ms":100}`), api.LayoutMismatch)
	short := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Workers: workerlease.Config{LongestTTL: time.Second}})
	for _, method := range []string{"POST", "PUT"} {
		wantField(t, short.do(t, method, "/worker/slow", `{"layout":"32/10/21@s"}`), api.InvalidRequest, "layout", "3000", "--worker-longest-ttl")
	}
}

// A pool that is to get a longer TTL, and nothing else, keeps its shape: another layout, epoch or
// datacenter could make ids of which there are some already.
func TestPoolThatIsReplacedKeepsWhatIsNotNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	pool := must[api.WorkerPool](t, s, 201, "PUT", "/worker/p", `{"layout":"41/5/5/12","epoch":"2024-02-29T00:00:00Z","datacenter":3,"ttl_ms":60000}`)
	want := pool
	want.TTLMs = 90_000
	expect.Equal(t, "with another TTL", must[api.WorkerPool](t, s, 201, "PUT", "/worker/p?replace=true", `{"ttl_ms":90000}`), want)
	expect.Equal(t, "with nothing else", must[api.WorkerPool](t, s, 201, "PUT", "/worker/p?replace=true", ""), want)
	want.Datacenter = 0
	expect.Equal(t, "in datacenter 0", must[api.WorkerPool](t, s, 201, "PUT", "/worker/p?replace=true", `{"datacenter":0}`), want)
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/p?replace=true", `{"datacenter":31}`)
	wantField(t, s.do(t, "PUT", "/worker/p?replace=true", `{"layout":"41/3/7/12"}`), api.InvalidRequest, "datacenter", "0 to 7")
	want.Layout, want.Size = "41/10/12", 1024
	expect.Equal(t, "without a datacenter", must[api.WorkerPool](t, s, 201, "PUT", "/worker/p?replace=true", `{"layout":"41/10/12"}`), want)
	fresh := must[api.WorkerPool](t, s, 201, "PUT", "/worker/new?replace=true", `{"ttl_ms":60000}`)
	expect.Equal(t, "a pool that is not there", []any{fresh.Layout, fresh.TTLMs}, []any{"41/10/12", int64(60_000)})
}

// A clock of the service that was set back to before a pool's epoch ends no lease: Redis counts the
// windows.
func TestClockOfTheServiceEndsNoLease(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	s := serve(t, server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
	expect.NoError(t, "declaring pool p", pools.Create(t.Context(), "p", workerlease.Shape{Layout: "41/10/12", Epoch: ahead}, 0))
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", "")
	must[api.WorkerRenewed](t, s, 200, "PUT", fmt.Sprint("/worker/p/", lease.WorkerID), text(t, proofOf(lease)), "Lease-Token: "+lease.Lease)
}
