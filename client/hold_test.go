package client_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// Every test here runs in a bubble where time passes only while all goroutines wait, so the times
// are exact. A TTL is 30 s; the local deadline is a second before its end.
const trusted = 29 * time.Second

// diary records the events of a holder.
type diary struct {
	mu     sync.Mutex
	events []holder.Event
}

func (d *diary) note(event holder.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event)
}

func (d *diary) count(kind holder.Kind) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, event := range d.events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

func (d *diary) options() client.HoldOptions { return client.HoldOptions{Observe: d.note} }

// hold holds a worker id until the test ends.
func hold(t testing.TB, s *service, options client.HoldOptions) *client.Holder {
	t.Helper()
	h, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{Identity: "me"}, options)
	must(t, "HoldWorker", err)
	// the service may be away
	t.Cleanup(func() { _ = h.Release(context.Background(), time.Time{}) })
	return h
}

func current(t testing.TB, h *client.Holder) client.WorkerLease {
	t.Helper()
	lease, err := h.Current()
	must(t, "Current", err)
	return lease
}

// noLease fails the test unless a holder has none, for that reason.
func noLease(t testing.TB, h *client.Holder, why error) {
	t.Helper()
	_, err := h.Lease()
	expect.Error(t, "Lease of a holder that has none", err, holder.ErrNone)
	expect.Error(t, "Lease of a holder that has none", err, why)
}

func TestAHeldWorkerIDStaysHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := bubble(t), &diary{}
		h := hold(t, s, d.options())
		first := current(t, h)
		for range 20 * 60 {
			time.Sleep(time.Second)
			if lease, err := h.Lease(); err != nil || lease.Fence != first.Fence || lease.Worker != first.WorkerID || !lease.NotAfter.After(time.Now()) {
				t.Fatalf("Lease: got %+v, %v, want one that is open, with worker id %d and fence %d", lease, err, first.WorkerID, first.Fence)
			}
		}
		n := s.proxy.count("renew")
		between(t, "renewals in 20 minutes, one each 10 s", n, 110, 130)
		expect.Equal(t, "renewals that the holder reported", d.count(holder.KindRenewed), n)
		expect.Equal(t, "leases asked for", s.proxy.count("acquire"), 1)
		used := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
		succeeds(t, "Release", h.Release(t.Context(), used))
		got := slot(t, s.Client, "orders", 0)
		expect.Equal(t, "the slot's state after Release", got.State, "free")
		expect.Equal(t, "the end of the slot's window after Release", got.NotAfter.Time, used)
		expect.Equal(t, "requests to give back", s.proxy.count("give back"), 1)
		noLease(t, h, keepalive.ErrReleased)
	})
}

// Whatever the proxy does: the holder stops by its own clock, a TTL less the margin after the last
// renewal that was confirmed had been sent.
func TestAHolderStopsInTimeWhateverTheServiceDoes(t *testing.T) {
	for name, fault := range map[string]fault{
		"black hole":         silent,
		"connections end":    hangUp,
		"replies are lost":   loseReply,
		"replies come late":  late(40 * time.Second),
		"store unavailable":  says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`),
		"outcome unknown":    says(503, "application/problem+json", `{"code":"outcome-unknown"}`),
		"a proxy's page":     says(502, "text/html", "bad gateway"),
		"a proxy's 410":      says(410, "text/html", "gone"),
		"not its answer":     says(200, "application/json", `{"worker_id":0}`),
		"too many requests":  says(429, "text/plain", "slow down"),
		"the pool is other":  says(409, "application/problem+json", `{"code":"layout-mismatch"}`),
		"answered by others": says(200, "application/json", `{"worker_id":1,"not_after":"2100-01-01T00:00:00Z","ttl_ms":30000,"server_time":"2000-01-01T00:00:00Z"}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := bubble(t), &diary{}
				confirmed := time.Now()
				options := d.options()
				options.Once = true
				h := hold(t, s, options)
				disturbed := time.Now().Add(5*time.Minute + 7*time.Second)
				s.proxy.disturb(only("renew", 0, func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if time.Now().Before(disturbed) {
						confirmed = time.Now()
						return false
					}
					return fault(w, r, service)
				}))
				<-h.Context().Done()
				expect.Equal(t, "how long after the last renewal the holder's context ended", time.Since(confirmed), trusted)
				expect.Error(t, "the cause of the holder's context", context.Cause(h.Context()), keepalive.ErrDeadline)
				after(t, "when the holder's context ended", time.Now(), disturbed)
				noLease(t, h, keepalive.ErrDeadline)
				<-h.Done()
				least := map[string]int{"black hole": 1, "replies come late": 0}
				want, is := least[name]
				if !is {
					want = 4
				}
				if n := d.count(holder.KindRenewalFailed); n < want {
					t.Errorf("the holder reported %d renewals that failed, want %d at least", n, want)
				}
			})
		})
	}
}

// A wait is for what passes by itself. What somebody has to change first is told at once.
func TestAWaitForAWorkerIDEndsWithARefusal(t *testing.T) {
	for _, row := range []struct {
		status int
		code   string
		want   error
	}{{401, "unauthorized", client.ErrUnauthorized}, {403, "forbidden", client.ErrForbidden}, {503, "store-unsuitable", client.ErrUnsuitable}} {
		answer, want := says(row.status, "application/problem+json", `{"code":"`+row.code+`"}`), row.want
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			s.proxy.disturb(only("acquire", 0, answer))
			began := time.Now()
			_, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
			wantError(t, err, want)
			expect.Equal(t, "how long HoldWorker waited", time.Since(began), 0)
			started := s.StartWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
			time.Sleep(time.Minute)
			synctest.Wait()
			expect.Equal(t, "StartWorker goes on", started.Context().Err() != nil && s.proxy.count("acquire") > 2, true)
			succeeds(t, "Release", started.Release(t.Context(), time.Time{}))
		})
	}
}

func TestAHolderEndsAtOnceWhenTheServiceSaysThatItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		h := hold(t, s, client.HoldOptions{Once: true})
		must(t, "ReleaseWorker by one who has the token", s.ReleaseWorker(t.Context(), current(t, h), time.Time{}))
		<-h.Done()
		noLease(t, h, client.ErrLost)
		noLease(t, h, keepalive.ErrLost)
		expect.Equal(t, "renewals until the holder knew", s.proxy.count("renew"), 1)
		succeeds(t, "Release of what is lost", h.Release(t.Context(), time.Time{}))
		expect.Equal(t, "requests to give back, the other's own among them", s.proxy.count("give back"), 1)
	})
}

// The reply to an acquire is lost, or comes too late to be of use: that costs a worker id until its
// window ends. The next one is another.
func TestAGrantWithALostReplyHasNoHolder(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault
		taken int
	}{"lost": {loseReply, 1}, "cut off": {cutOff, 0}, "not served": {hangUp, 0}, "too late": {late(9 * time.Second), 1}, "after the client has gone": {late(time.Hour), 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			s.proxy.disturb(only("acquire", 3, row.fault))
			h, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{TTL: 5 * time.Second, Identity: "me"}, client.HoldOptions{Wait: time.Minute})
			must(t, "HoldWorker whose replies are "+name, err)
			defer h.Release(t.Context(), time.Time{})
			ring, err := s.Ring(t.Context(), "orders", 0, 10)
			must(t, "Ring", err)
			expect.MustEqual(t, "leases asked for, with replies that are "+name, s.proxy.count("acquire"), 4)
			mine, fences := current(t, h), []int64{}
			for _, slot := range ring.Slots {
				if slot.Fence == 0 {
					continue
				}
				fences = append(fences, slot.Fence)
				if slot.WorkerID == mine.WorkerID && slot.Fence != mine.Fence {
					t.Errorf("%s: the slot of the lease %+v is %+v, want its fence", name, mine, slot)
				}
			}
			if row.taken == 0 && len(fences) != 1 || !slices.Contains(fences, mine.Fence) || slices.Max(fences) != mine.Fence {
				t.Errorf("%s: the ring's fences are %v, want the holder's %d as the largest, and the only one if no grant was made", name, fences, mine.Fence)
			}
			time.Sleep(20 * time.Second)
			ring, err = s.Ring(t.Context(), "orders", 0, 10)
			held := 0
			for _, slot := range ring.Slots {
				if slot.State == "held" {
					held++
				}
			}
			succeeds(t, name+": Ring in the end", err)
			expect.Equal(t, name+": slots held in the end", held, 1)
		})
	}
}

func TestWhatCannotBeLeasedIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		acquire(t, s.Client, "orders", client.WorkerRequest{})
		for name, row := range map[string]struct {
			pool    string
			request client.WorkerRequest
			want    error
			sent    int
		}{
			"another layout":     {"orders", client.WorkerRequest{Layout: "41/5/7"}, client.ErrOtherPool, 2},
			"another ttl":        {"orders", client.WorkerRequest{TTL: time.Second}, client.ErrOtherPool, 2},
			"a ttl out of range": {"orders", client.WorkerRequest{TTL: 25 * time.Hour}, client.ErrInvalid, 2},
			"a negative ttl":     {"orders", client.WorkerRequest{TTL: -time.Second}, client.ErrInvalid, 2},
			"no layout":          {"new", client.WorkerRequest{Layout: "nonsense"}, client.ErrInvalid, 2},
			"a wrong datacenter": {"new", client.WorkerRequest{Datacenter: new(1)}, client.ErrInvalid, 2},
			"a wrong identity":   {"new", client.WorkerRequest{Identity: "a b"}, client.ErrInvalid, 2},
			"an epoch to come":   {"new", client.WorkerRequest{Epoch: time.Now().Add(time.Hour)}, client.ErrInvalid, 2},
			"no pool":            {"a/b", client.WorkerRequest{}, client.ErrInvalid, 0},
		} {
			before := s.proxy.count("acquire")
			_, err := s.HoldWorker(t.Context(), row.pool, row.request, client.HoldOptions{Wait: time.Hour})
			wantError(t, err, row.want)
			h := s.StartWorker(t.Context(), row.pool, row.request, client.HoldOptions{})
			<-h.Done()
			noLease(t, h, row.want)
			expect.Equal(t, "leases asked for with "+name, s.proxy.count("acquire")-before, row.sent)
		}
	})
}

// A wait that something on the way asks for is kept only so long.
func TestAHolderDoesNotWaitForEverBecauseAProxySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.proxy.disturb(only("acquire", 2, func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
			w.Header().Set("Retry-After", strconv.Itoa(365*24*60*60))
			return says(503, "text/html", "maintenance")(w, r, service)
		}))
		h := s.StartWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
		defer h.Release(t.Context(), time.Time{})
		time.Sleep(time.Minute)
		_, err := h.Lease()
		succeeds(t, "Lease a minute after a proxy asked for a year", err)
	})
}
