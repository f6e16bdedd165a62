package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/holder"
	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Every test here runs in a bubble where time passes only while everybody waits, so the times are exact. A TTL is 30 s; the local deadline is a second before its end.
const trusted = 29 * time.Second

// diary notes what a holder tells.
type diary struct {
	mu     sync.Mutex
	events []client.HoldEvent
}

func (d *diary) note(event client.HoldEvent) {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Release(context.Background(), time.Time{}) }) // the service may be away
	return h
}

func current(t testing.TB, h *client.Holder) client.WorkerLease {
	t.Helper()
	lease, err := h.Current()
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestAHeldWorkerIDStaysHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := bubble(t), &diary{}
		h := hold(t, s, d.options())
		first := current(t, h)
		for range 20 * 60 {
			time.Sleep(time.Second)
			if lease, err := h.Lease(); err != nil || lease.Fence != first.Fence || lease.Worker != first.WorkerID || !lease.NotAfter.After(time.Now()) {
				t.Fatalf("%+v, %v", lease, err)
			}
		}
		if n := s.line.count("renew"); n < 110 || n > 130 || d.count(holder.Renewed) != n || s.line.count("acquire") != 1 {
			t.Errorf("%d renewals", n)
		}
		used := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
		if err := h.Release(t.Context(), used); err != nil {
			t.Error(err)
		}
		if got := slot(t, s.Client, "orders", 0); got.State != "free" || !got.NotAfter.Equal(used) || s.line.count("give back") != 1 {
			t.Errorf("%+v, used until %v", got, used)
		}
		if _, err := h.Lease(); !errors.Is(err, holder.ErrNone) || !errors.Is(err, keepalive.ErrReleased) {
			t.Error(err)
		}
	})
}

// Whatever the line does: the holder stops by its own clock, a TTL less the margin after the last renewal that was confirmed had been sent.
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
				h := hold(t, s, d.options())
				disturbed := time.Now().Add(5*time.Minute + 7*time.Second)
				s.line.disturb(only("renew", 0, func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if time.Now().Before(disturbed) {
						confirmed = time.Now()
						return false
					}
					return fault(w, r, service)
				}))
				<-h.Context().Done()
				if after, cause := time.Since(confirmed), context.Cause(h.Context()); after != trusted || !errors.Is(cause, keepalive.ErrDeadline) || time.Now().Before(disturbed) {
					t.Errorf("ended %v after the last renewal: %v", after, cause)
				}
				if _, err := h.Lease(); !errors.Is(err, keepalive.ErrDeadline) || !errors.Is(err, holder.ErrNone) {
					t.Error(err)
				}
				<-h.Done()
				if n := d.count(holder.RenewalFailed); name == "black hole" && n < 1 || name != "black hole" && name != "replies come late" && n < 4 {
					t.Errorf("%d renewals failed", n)
				}
			})
		})
	}
}

func TestAShortOutageCostsNothing(t *testing.T) {
	for name, fault := range map[string]fault{"silent": silent, "ended": hangUp, "unavailable": says(503, "application/problem+json", `{"code":"store-unavailable"}`), "lost": loseReply} {
		synctest.Test(t, func(t *testing.T) {
			s, d := bubble(t), &diary{}
			if _, err := s.CreatePool(t.Context(), "orders", client.PoolShape{TTL: 6 * time.Second}); err != nil { // less than the client's own timeout
				t.Fatal(err)
			}
			h := hold(t, s, d.options())
			first := current(t, h)
			for range 10 {
				s.line.disturb(only("renew", 1, fault)) // one that hangs makes room for the next
				time.Sleep(time.Minute)
				if lease, err := h.Lease(); err != nil || lease.Fence != first.Fence {
					t.Fatalf("%s: %+v, %v", name, lease, err)
				}
			}
			if n := d.count(holder.RenewalFailed); n != 10 || d.count(holder.Lost) != 0 {
				t.Errorf("%s: %d renewals failed", name, n)
			}
		})
	}
}

func TestAHolderEndsAtOnceWhenTheServiceSaysThatItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		h := hold(t, s, client.HoldOptions{})
		if err := s.ReleaseWorker(t.Context(), current(t, h), time.Time{}); err != nil { // by somebody who has its token
			t.Fatal(err)
		}
		<-h.Done()
		_, err := h.Lease()
		if !errors.Is(err, client.ErrLost) || !errors.Is(err, keepalive.ErrLost) || !errors.Is(err, holder.ErrNone) || s.line.count("renew") != 1 {
			t.Errorf("%v after %d renewals", err, s.line.count("renew"))
		}
		if err := h.Release(t.Context(), time.Time{}); err != nil || s.line.count("give back") != 1 {
			t.Errorf("what is lost is given back: %v", err)
		}
	})
}

// A service that is away for longer than a TTL: what was held is gone, and another worker id is leased when the service is there again.
func TestAHolderReacquires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := bubble(t), &diary{}
		options := d.options()
		options.Reacquire = true
		h := hold(t, s, options)
		first := current(t, h)
		s.line.disturb(hangUp)
		<-h.Context().Done()
		time.Sleep(10 * time.Minute)
		if _, err := h.Lease(); !errors.Is(err, keepalive.ErrDeadline) {
			t.Error(err)
		}
		if n := s.line.count("acquire"); n < 60 || n > 400 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		s.line.disturb(nil)
		time.Sleep(time.Minute)
		second := current(t, h)
		if second.Fence <= first.Fence || second.NotBefore.Before(first.NotAfter) || second.WorkerID != first.WorkerID { // of the same identity
			t.Errorf("%+v after %+v", second, first)
		}
		if d.count(holder.Granted) != 2 || d.count(holder.Lost) != 1 {
			t.Errorf("%d grants", d.count(holder.Granted))
		}
	})
}

// The reply to an acquire is lost, or comes too late to be of use: that costs a worker id until its window ends. The next one is another.
func TestAGrantWhoseReplyWasLostIsNobodys(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault
		taken int
	}{"lost": {loseReply, 1}, "cut off": {cutOff, 0}, "not served": {hangUp, 0}, "too late": {late(9 * time.Second), 1}, "after the client has gone": {late(time.Hour), 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			s.line.disturb(only("acquire", 3, row.fault))
			h, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{TTL: 5 * time.Second, Identity: "me"}, client.HoldOptions{Patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release(t.Context(), time.Time{})
			ring, err := s.Ring(t.Context(), "orders", 0, 10)
			if err != nil || s.line.count("acquire") != 4 {
				t.Fatalf("%v after %d requests", err, s.line.count("acquire"))
			}
			mine, fences := current(t, h), []int64{}
			for _, slot := range ring.Slots {
				if slot.Fence == 0 {
					continue
				}
				fences = append(fences, slot.Fence)
				if slot.WorkerID == mine.WorkerID && slot.Fence != mine.Fence {
					t.Errorf("%s: %+v, held %+v", name, slot, mine)
				}
			}
			if row.taken == 0 && len(fences) != 1 || !slices.Contains(fences, mine.Fence) || slices.Max(fences) != mine.Fence {
				t.Errorf("%s: fences %v, held %d", name, fences, mine.Fence)
			}
			time.Sleep(20 * time.Second)
			ring, err = s.Ring(t.Context(), "orders", 0, 10)
			held := 0
			for _, slot := range ring.Slots {
				if slot.State == "held" {
					held++
				}
			}
			if err != nil || held != 1 {
				t.Errorf("%s: %d are held in the end, %v", name, held, err)
			}
		})
	}
}

func TestAHolderWaitsAsLongAsTheServiceSays(t *testing.T) {
	t.Run("exhausted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			for range 2 {
				acquire(t, s.Client, "orders", client.WorkerRequest{Layout: "41/1/12", TTL: 20 * time.Second})
			}
			waitsFor(t, s, 20*time.Second, client.ErrExhausted)
		})
	})
	t.Run("quarantined", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			waitsFor(t, bubbleWith(t, workerlease.Config{}), 31*time.Second, client.ErrQuarantined)
		})
	})
}

// waitsFor leases while nothing can be had for so long. A long wait is cut short, since a holder may give back at any time; it is not asked much more often for that.
func waitsFor(t *testing.T, s *service, span time.Duration, want error) {
	t.Helper()
	began, asked := time.Now(), s.line.count("acquire")
	_, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
	if said := wantError(t, err, want); said.RetryAfter != span || time.Since(began) != 0 {
		t.Errorf("%+v after %v", said, time.Since(began))
	}
	_, err = s.HoldWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{Patience: span / 2})
	wantError(t, err, want)
	if after := time.Since(began); after > span/2 {
		t.Errorf("given up after %v", after)
	}
	h, err := s.HoldWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{Patience: 2 * span})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release(t.Context(), time.Time{})
	if after, n := time.Since(began), s.line.count("acquire")-asked; after < span || after > span+10*time.Second || n > 5+int(span/(5*time.Second)) {
		t.Errorf("granted after %v and %d requests", after, n)
	}
}

// A wait that something on the way asks for is kept only so long.
func TestAHolderDoesNotWaitForEverBecauseAProxySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.line.disturb(only("acquire", 2, func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
			w.Header().Set("Retry-After", strconv.Itoa(365*24*60*60))
			return says(503, "text/html", "maintenance")(w, r, service)
		}))
		began := time.Now()
		h := s.StartWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
		defer h.Release(t.Context(), time.Time{})
		time.Sleep(time.Minute)
		if _, err := h.Lease(); err != nil {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestStartWorkerGoesOnUntilThereIsAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.line.disturb(hangUp)
		h := s.StartWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{})
		time.Sleep(time.Hour)
		if _, err := h.Lease(); !errors.Is(err, holder.ErrNone) {
			t.Error(err)
		}
		s.line.disturb(nil)
		time.Sleep(time.Minute)
		current(t, h)
		if err := h.Release(t.Context(), time.Time{}); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatCanNotBeLeasedIsAskedForOnce(t *testing.T) {
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
			"a ttl out of range": {"orders", client.WorkerRequest{TTL: 25 * time.Hour}, client.ErrInvalidRequest, 2},
			"a negative ttl":     {"orders", client.WorkerRequest{TTL: -time.Second}, client.ErrInvalidRequest, 2},
			"no layout":          {"new", client.WorkerRequest{Layout: "nonsense"}, client.ErrInvalidRequest, 2},
			"a wrong datacenter": {"new", client.WorkerRequest{Datacenter: new(1)}, client.ErrInvalidRequest, 2},
			"a wrong identity":   {"new", client.WorkerRequest{Identity: "a b"}, client.ErrInvalidRequest, 2},
			"an epoch to come":   {"new", client.WorkerRequest{Epoch: time.Now().Add(time.Hour)}, client.ErrInvalidRequest, 2},
			"no pool":            {"a/b", client.WorkerRequest{}, client.ErrInvalidRequest, 0},
		} {
			before := s.line.count("acquire")
			_, err := s.HoldWorker(t.Context(), row.pool, row.request, client.HoldOptions{Patience: time.Hour})
			wantError(t, err, row.want)
			h := s.StartWorker(t.Context(), row.pool, row.request, client.HoldOptions{Reacquire: true})
			<-h.Done()
			if _, err := h.Lease(); !errors.Is(err, row.want) || !errors.Is(err, holder.ErrNone) {
				t.Errorf("%s: %v", name, err)
			}
			if n := s.line.count("acquire") - before; n != row.sent {
				t.Errorf("%s: asked %d times", name, n)
			}
		}
	})
}

func TestReleasingToAServiceThatIsAwayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		h := hold(t, s, client.HoldOptions{})
		token := current(t, h).Token
		s.line.disturb(only("give back", 0, silent))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := h.Release(ctx, time.Now())
		wantError(t, err, client.ErrUnknownOutcome)
		if time.Since(began) != 3*time.Second || strings.Contains(err.Error(), token) {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := h.Lease(); !errors.Is(err, keepalive.ErrReleased) {
			t.Error(err)
		}
	})
}

// The client's own wall clock has no part in it.
func TestALeasesClockIsTheServers(t *testing.T) {
	for _, delay := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			s.line.disturb(late(delay))
			wrong := func() time.Time { return time.Now().Add(-10 * time.Minute) }
			h := hold(t, s, client.HoldOptions{Wall: wrong})
			for range 100 {
				lease, err := h.Lease()
				if behind := time.Since(lease.Time.Add(time.Since(lease.At))); err != nil || behind < -time.Millisecond || behind > delay+time.Millisecond {
					t.Fatalf("behind by %v, %v", behind, err)
				}
				time.Sleep(7 * time.Second)
			}
		})
	}
}
