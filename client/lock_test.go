package client_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
)

// toldOfLocks is what each problem of the lock endpoints is.
var toldOfLocks = map[api.Code]error{
	"lock-held":         client.ErrHeld,
	"lease-lost":        client.ErrLost,
	"permits-mismatch":  client.ErrPermits,
	"pool-quarantined":  client.ErrQuarantined,
	"invalid-request":   client.ErrInvalid,
	"invalid-name":      client.ErrInvalid,
	"not-found":         client.ErrNotFound,
	"store-unavailable": client.ErrUnavailable,
	"outcome-unknown":   client.ErrUnknownOutcome,
}

// The page has every code that these endpoints can answer, with its status, and says of each
// whether anything was done as this package does.
func TestCodesOfTheLocksPage(t *testing.T) {
	text, err := os.ReadFile("../docs/locks.md")
	must(t, "reading the page", err)
	checkCodes(t, section(string(text), "### What to do on each answer about a lock\n"), toldOfLocks)
}

// holdLock holds a lock until the test ends.
func holdLock(t testing.TB, s *service, name string, request client.LockRequest) *client.Lock {
	t.Helper()
	held, err := s.AcquireLock(t.Context(), name, request)
	must(t, "AcquireLock "+name, err)
	t.Cleanup(func() { _ = held.Release(context.Background()) }) // the service may be away
	return held
}

// As in package lock: what is left of a time that is over is no wait without an end.
func TestNegativeWaitForALockIsRefused(t *testing.T) {
	s := embedded(t)
	holdLock(t, s, "deploy", client.LockRequest{})
	_, err := s.AcquireLock(t.Context(), "deploy", client.LockRequest{Wait: -time.Second})
	wantError(t, err, client.ErrInvalid)
}

// A request that waits may take the wait beside the timeout, however long that is.
func TestLockIsAcquiredWithTheLongestTimeout(t *testing.T) {
	s := embedded(t)
	c := connect(t, s.url, func(config *client.Config) { config.Timeout = math.MaxInt64 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held, err := c.AcquireLock(ctx, "deploy", client.LockRequest{})
	must(t, "AcquireLock", err)
	must(t, "Release", held.Release(t.Context()))
}

func shown(t testing.TB, s *service, name string) api.Lock {
	t.Helper()
	info, err := s.Lock(t.Context(), name)
	must(t, "Lock "+name, err)
	return info
}

func (s *service) lockRound(t *testing.T) {
	held := holdLock(t, s, "round", client.LockRequest{Owner: "me", TTL: time.Hour})
	expect.Equal(t, "Name of the lock", held.Name(), "round")
	expect.Equal(t, "TTL of the lock", held.TTL(), time.Hour)
	succeeds(t, "Err of a lock that is held", held.Err())
	if held.Fence() < 1 || held.Since().IsZero() {
		t.Errorf("the lock has fence %d, since %v, want both", held.Fence(), held.Since())
	}
	between(t, "how long the lock can be trusted", held.Validity(), 1, time.Hour-time.Second)
	info := shown(t, s, "round")
	expect.Equal(t, "Lock that is held", info, api.Lock{
		Name: "round", Mode: "exclusive", Fence: held.Fence(), Holders: []api.LockHolder{{Owner: "me", Fence: held.Fence(), Since: api.At(held.Since())}},
	}, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(api.Lock{}, "ServerTime"), cmpopts.IgnoreFields(api.LockHolder{}, "Until", "Take"))
	if info.ServerTime.IsZero() {
		t.Errorf("Lock that is held: got %+v, want the time", info)
	}
	_, err := s.TryAcquireLock(t.Context(), "round", client.LockRequest{})
	failure := wantError(t, err, client.ErrHeld)
	between(t, "the wait of the error for a lock that is held", failure.Wait, 1, time.Hour)
	expect.Equal(t, "whether asking again may help", failure.Retryable, true)
	other := holdLock(t, s, "round:2", client.LockRequest{})
	var names []string
	for info, err := range s.Locks(t.Context(), "round") {
		must(t, "Locks", err)
		names = append(names, info.Name)
	}
	expect.Equal(t, "Locks", names, []string{"round", "round:2"})
	for range 2 {
		succeeds(t, "Release", errors.Join(held.Release(t.Context()), other.Release(t.Context())))
	}
	expect.Error(t, "Err of a lock that was released", held.Err(), client.ErrReleased)
	expect.Error(t, "Err of the context of a lock that was released", held.Context().Err(), context.Canceled)
	if left := held.Validity(); left > 0 {
		t.Errorf("a lock that was released can be trusted for %v, want no more", left)
	}
	later(t, holdLock(t, s, "round", client.LockRequest{}).Fence(), held.Fence())
}

// later fails the test unless a fence is larger than that of an earlier grant.
func later(t testing.TB, fence, earlier int64) {
	t.Helper()
	if fence <= earlier {
		t.Errorf("got fence %d after %d, want a larger one", fence, earlier)
	}
}

func (s *service) lockHandedOver(t *testing.T) {
	held := holdLock(t, s, "handed", client.LockRequest{})
	_, err := s.AcquireLock(t.Context(), "handed", client.LockRequest{Wait: 50 * time.Millisecond})
	wantError(t, err, client.ErrHeld)
	got := make(chan *client.Lock, 1)
	go func() {
		next, err := s.AcquireLock(t.Context(), "handed", client.LockRequest{Owner: "next"})
		succeeds(t, "AcquireLock of the next waiter", err)
		got <- next
	}()
	expect.Eventually(t, "it waits", func() bool { return shown(t, s, "handed").Waiting == 1 })
	queue := shown(t, s, "handed").Queue
	expect.MustEqual(t, "the queue of the lock", queue, []api.LockWaiter{{Owner: "next", Mode: "exclusive"}}, cmpopts.IgnoreFields(api.LockWaiter{}, "Since", "Take"))
	if queue[0].Since.IsZero() {
		t.Errorf("the queue of the lock: got %+v, want since when", queue)
	}
	succeeds(t, "Release", held.Release(t.Context()))
	if next := <-got; next != nil {
		later(t, next.Fence(), held.Fence())
		succeeds(t, "Release of the next waiter", next.Release(t.Context()))
	}
}

func (s *service) lockTogether(t *testing.T) {
	holdLock(t, s, "shared", client.LockRequest{Mode: "shared"})
	holdLock(t, s, "shared", client.LockRequest{Mode: "shared"})
	_, err := s.TryAcquireLock(t.Context(), "shared", client.LockRequest{})
	wantError(t, err, client.ErrHeld)
	holdLock(t, s, "permits", client.LockRequest{Permits: 3})
	holdLock(t, s, "permits", client.LockRequest{Permits: 3, Take: 2})
	_, err = s.TryAcquireLock(t.Context(), "permits", client.LockRequest{Permits: 3})
	wantError(t, err, client.ErrHeld)
	// no waiting makes it four
	_, err = s.AcquireLock(t.Context(), "permits", client.LockRequest{Permits: 4})
	wantError(t, err, client.ErrPermits)
	info := shown(t, s, "permits")
	expect.Equal(t, "permits that there are", info.Permits, 3)
	expect.MustEqual(t, "holders of permits", len(info.Holders), 2)
	expect.Equal(t, "permits of the second holder", info.Holders[1].Take, 2)
}

func (s *service) lockBroken(t *testing.T) {
	held := holdLock(t, s, "broken", client.LockRequest{TTL: time.Hour})
	_, err := s.BreakLock(t.Context(), "broken", held.Fence()+1)
	wantError(t, err, client.ErrNotFound)
	minted, err := s.BreakLock(t.Context(), "broken", held.Fence())
	succeeds(t, "BreakLock", err)
	later(t, minted, held.Fence())
	wantError(t, held.Release(t.Context()), client.ErrLost)
}

func (s *service) lockKept(t *testing.T) {
	held := holdLock(t, s, "kept", client.LockRequest{TTL: time.Minute})
	succeeds(t, "ReleaseAfter", held.ReleaseAfter(t.Context(), time.Hour))
	succeeds(t, "Release after ReleaseAfter, which does nothing", held.Release(t.Context()))
	expect.Error(t, "Err of a lock that is kept for a while", held.Err(), client.ErrReleased)
	info := shown(t, s, "kept")
	expect.MustEqual(t, "holders of a lock that is kept for a while", len(info.Holders), 1)
	between(t, "how long it is kept", info.Holders[0].Until.Sub(info.ServerTime.Time), 59*time.Minute, time.Hour)
	short := holdLock(t, s, "kept-briefly", client.LockRequest{TTL: time.Hour})
	succeeds(t, "a short ReleaseAfter", short.ReleaseAfter(t.Context(), time.Nanosecond))
	next, err := s.AcquireLock(t.Context(), "kept-briefly", client.LockRequest{})
	must(t, "AcquireLock of the next waiter", err)
	later(t, next.Fence(), short.Fence())
	succeeds(t, "Release of the next waiter", next.Release(t.Context()))
	long := holdLock(t, s, "kept-too-long", client.LockRequest{})
	wantError(t, long.ReleaseAfter(t.Context(), 25*time.Hour), client.ErrInvalid)
}

// Its holder learns of it with the next renewal.
func TestALockThatIsBrokenIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		held := holdLock(t, s, "broken", client.LockRequest{TTL: time.Hour})
		_, err := s.BreakLock(t.Context(), "broken", held.Fence())
		must(t, "BreakLock", err)
		began := time.Now()
		<-held.Done()
		between(t, "how long the holder did not know", time.Since(began), 0, time.Hour/2)
		expect.Error(t, "Err of a lock that was broken", held.Err(), client.ErrLost)
		if errors.Is(held.Err(), client.ErrDeadline) {
			t.Errorf("Err of a lock that was broken: got %v, want none that is %v", held.Err(), client.ErrDeadline)
		}
		wantError(t, held.Release(t.Context()), client.ErrLost)
	})
}

func (s *service) lockNotWaitedFor(t *testing.T) {
	holdLock(t, s, "not-waited", client.LockRequest{})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.AcquireLock(ctx, "not-waited", client.LockRequest{})
		ended <- err
	}()
	expect.Eventually(t, "it waits", func() bool { return shown(t, s, "not-waited").Waiting == 1 })
	cancel(nil)
	expect.Error(t, "AcquireLock whose context ends", <-ended, context.Canceled)
	expect.Eventually(t, "it waits no more", func() bool { return shown(t, s, "not-waited").Waiting == 0 })
}

// renewals limits a fault to the renewals of locks.
func renewals(with fault) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		return r.Method == http.MethodPut && with(w, r, service)
	}
}

// Whatever the proxy does: the lock's context ends by this process's clock, a TTL less the margin
// after the last renewal that was confirmed had been sent.
func TestALockEndsInTimeWhateverTheServiceDoes(t *testing.T) {
	for name, fault := range map[string]fault{
		"black hole":        silent,
		"connections end":   hangUp,
		"replies are lost":  loseReply,
		"replies come late": late(40 * time.Second),
		"store unavailable": says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`),
		"a proxy's 410":     says(410, "text/html", "gone"),
		"not its answer":    says(200, "application/json", `{}`),
		"another's answer":  says(200, "application/json", `{"name":"other","expires_at":"2100-01-01T00:00:00Z","ttl_ms":30000}`),
		"a shorter lease":   says(200, "application/json", `{"name":"deploy","expires_at":"2100-01-01T00:00:00Z","ttl_ms":1000}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				confirmed := time.Now()
				held := holdLock(t, s, "deploy", client.LockRequest{})
				disturbed := time.Now().Add(5*time.Minute + 7*time.Second)
				s.proxy.disturb(renewals(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if time.Now().Before(disturbed) {
						confirmed = time.Now()
						return false
					}
					return fault(w, r, service)
				}))
				<-held.Done()
				expect.Equal(t, "how long after the last renewal the lock's context ended", time.Since(confirmed), trusted)
				expect.Error(t, "Err of the lock", held.Err(), client.ErrDeadline)
				expect.Error(t, "the cause of the lock's context", context.Cause(held.Context()), client.ErrLost)
				after(t, "when the lock's context ended", time.Now(), disturbed)
				if name == "replies are lost" {
					return // it is renewed, unknown to the client
				}
				if info := shown(t, s, "deploy"); len(info.Holders) != 1 && name != "replies come late" {
					t.Errorf("the lease ended before its holder's context did: got %+v, want a holder", info)
				}
			})
		})
	}
}

// The lease of a lock that was waited for begins at an unknown time: it is counted from a renewal
// that was sent after that.
func TestALockThatWasWaitedForIsNotTrustedForTooLong(t *testing.T) {
	for name, delay := range map[string]time.Duration{"waited": 0, "waited, and the answer was late": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				first := holdLock(t, s, "deploy", client.LockRequest{})
				time.AfterFunc(20*time.Second, func() { _ = first.Release(context.Background()) })
				var asked atomic.Int64
				s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if r.Method == http.MethodPost {
						return late(delay)(w, r, service)
					}
					return r.Method == http.MethodPut && time.Since(first.Since()) >= 20*time.Second && asked.Add(1) > 1 && silent(w, r, service)
				})
				next := holdLock(t, s, "deploy", client.LockRequest{})
				began := time.Now()
				until := shown(t, s, "deploy").Holders[0].Until
				expect.Equal(t, "how long the lock can be trusted", next.Validity(), trusted)
				expect.Equal(t, "renewals until it is trusted", asked.Load(), 1)
				<-next.Done()
				expect.Equal(t, "how long the lock was trusted", time.Since(began), trusted)
				if time.Now().After(until.Time) {
					t.Errorf("the lock was trusted until %v, its lease ended at %v", time.Now(), until)
				}
			})
		})
	}
}

// A lock whose grant came late and whose renewal fails is given back, and the error of all that is
// of one class.
func TestAGrantThatCannotBeKeptHasAnErrorOfOneClass(t *testing.T) {
	away := says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`)
	gone := says(410, "application/problem+json", `{"code":"lease-lost"}`)
	for name, row := range map[string]struct {
		renewal, release fault
		want             error
	}{
		"refused, and given back":              {away, nil, client.ErrUnavailable},
		"refused, and lost when given back":    {away, gone, client.ErrUnavailable},
		"lost, and the service is away":        {gone, away, client.ErrLost},
		"refused, and the service stays away":  {away, away, client.ErrUnknownOutcome},
		"refused, and an answer does not come": {away, loseReply, client.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					with := map[string]fault{http.MethodPost: late(9 * time.Second), http.MethodPut: row.renewal, http.MethodDelete: row.release}[r.Method]
					return with != nil && with(w, r, service)
				})
				_, err := s.TryAcquireLock(t.Context(), "deploy", client.LockRequest{})
				expect.Error(t, "TryAcquireLock", err, row.want)
				expect.Equal(t, "classes of "+err.Error(), classesOf(err), 1)
			})
		})
	}
}

// A wait goes on while the service is away for a moment, and no longer; a call that does not wait
// gets the error at once.
func TestAWaitOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.proxy.disturb(says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`))
		_, err := s.TryAcquireLock(t.Context(), "deploy", client.LockRequest{})
		wantError(t, err, client.ErrUnavailable)
		began := time.Now()
		_, err = s.AcquireLock(t.Context(), "deploy", client.LockRequest{})
		wantError(t, err, client.ErrUnavailable)
		between(t, "when a wait without an end gave up", time.Since(began), 14*time.Second, 16*time.Second)
		began = time.Now()
		_, err = s.AcquireLock(t.Context(), "deploy", client.LockRequest{Wait: 3 * time.Second})
		wantError(t, err, client.ErrUnavailable)
		expect.Equal(t, "when a wait of 3 s gave up", time.Since(began), 3*time.Second)
		time.AfterFunc(10*time.Second, func() { s.proxy.disturb(nil) })
		holdLock(t, s, "deploy", client.LockRequest{})
	})
}

// A wait that is longer than the service allows is asked for anew.
func TestAWaitIsLongerThanTheServiceAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		first := holdLock(t, s, "deploy", client.LockRequest{})
		time.AfterFunc(10*time.Minute, func() { _ = first.Release(context.Background()) })
		began := time.Now()
		_, err := s.AcquireLock(t.Context(), "deploy", client.LockRequest{Wait: 5 * time.Minute})
		wantError(t, err, client.ErrHeld)
		between(t, "when a wait of 5 minutes gave up", time.Since(began), 5*time.Minute, 5*time.Minute+time.Second)
		next := holdLock(t, s, "deploy", client.LockRequest{})
		between(t, "when the lock was had that was free after 10 minutes", time.Since(began), 0, 10*time.Minute+time.Second)
		later(t, next.Fence(), first.Fence())
	})
}

func TestLockRequestsThatCannotBeMeantAreRefused(t *testing.T) {
	s := embedded(t)
	for _, request := range []client.LockRequest{
		{TTL: time.Millisecond}, {TTL: -time.Second}, {TTL: -1}, {TTL: 25 * time.Hour}, {Mode: "write"}, {Permits: -1},
		{Permits: 2, Mode: "shared"}, {Permits: 2, Take: 3}, {Owner: "a b"},
	} {
		_, err := s.AcquireLock(t.Context(), "deploy", request)
		wantError(t, err, client.ErrInvalid, "request", request)
	}
}

// An answer that has the right status, and not what belongs into it, is no grant.
func TestAnswersThatAreNoGrantOfALock(t *testing.T) {
	const whole = `"name":"deploy","lease":"AAAAAAAAAAAAAAAAAAAAAA","fence":5,"since":"2026-01-01T00:00:00Z","ttl_ms":30000`
	for body, granted := range map[string]bool{
		"{" + whole + "}": true, `{}`: false, `null`: false, `{` + whole + `,"name":"other"}`: false, `{` + whole + `,"lease":""}`: false, `{` + whole + `,"lease":"a b"}`: false,
		`{` + whole + `,"fence":0}`: false, `{` + whole + `,"since":null}`: true, `{` + whole + `,"ttl_ms":0}`: false, `{` + whole + `,"ttl_ms":60000}`: false,
	} {
		c := faced(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			return says(map[string]int{"POST": 201, "DELETE": 204}[r.Method], "application/json", body)(w, r, nil)
		})
		held, err := c.TryAcquireLock(t.Context(), "deploy", client.LockRequest{TTL: 30 * time.Second})
		if granted {
			must(t, "TryAcquireLock, answered "+body, err)
			expect.Equal(t, "the fence of the lock, answered "+body, held.Fence(), 5)
			_ = held.Release(t.Context()) // it reaches no server
			continue
		}
		wantError(t, err, client.ErrUnknownOutcome, "answer", body)
	}
}

// On a real Redis: the context ends before another has the lock, which waits for it at Redis
// itself.
func TestContextOfALockEndsBeforeItIsFree(t *testing.T) {
	redis := redistest.Start(t)
	for name, fault := range map[string]fault{"service gone": hangUp, "black hole": silent} {
		t.Run(name, func(t *testing.T) {
			store := open(t, redis.URL())
			s := serve(t, store)
			t.Cleanup(func() { s.proxy.disturb(nil) })
			rivals := lock.New(store, lock.Config{})
			defer rivals.Close()
			held := holdLock(t, s, "deploy", client.LockRequest{TTL: 3 * time.Second})
			ends := trustEnds(held)
			s.proxy.disturb(fault)
			next, err := rivals.Acquire(t.Context(), "deploy", lock.Request{})
			must(t, "Acquire by a rival", err)
			after(t, "since when another has the lock that could be trusted before", next.Since(), <-ends)
			expect.Error(t, "Err of the lock", held.Err(), client.ErrDeadline)
			later(t, next.Fence(), held.Fence())
			succeeds(t, "Release by the rival", next.Release(t.Context()))
		})
	}
}

// trustEnds returns when a lock ends until when it could be trusted. When a busy machine comes to
// end its context does not count.
func trustEnds(held *client.Lock) <-chan time.Time {
	ends := make(chan time.Time, 1)
	go func() {
		var until time.Time
		for held.Context().Err() == nil {
			now := time.Now()
			if left := held.Validity(); left > 0 {
				until = now.Add(left)
			}
			time.Sleep(5 * time.Millisecond)
		}
		ends <- until
	}()
	return ends
}
