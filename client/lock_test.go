package client_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// toldOfLocks is what each problem of the lock endpoints is.
var toldOfLocks = map[wire.Code]error{
	"lock-held":         client.ErrHeld,
	"lease-lost":        client.ErrLost,
	"layout-mismatch":   client.ErrOtherPool,
	"pool-quarantined":  client.ErrQuarantined,
	"invalid-request":   client.ErrInvalidRequest,
	"invalid-name":      client.ErrInvalidRequest,
	"not-found":         client.ErrNotFound,
	"store-unavailable": client.ErrUnavailable,
	"outcome-unknown":   client.ErrUnknownOutcome,
}

func TestEveryCodeOfALockIsTold(t *testing.T) {
	for code, want := range toldOfLocks {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { wire.NewProblem(code, "").Write(w) })))
		_, err := c.TryAcquireLock(t.Context(), "deploy", client.LockRequest{})
		if said := wantError(t, err, want); said.Code != string(code) {
			t.Errorf("%s: %+v", code, said)
		}
	}
}

// The page has every code that these endpoints can answer, with its status, and says of each whether anything was done as this package does.
func TestCodesOfTheLocksPage(t *testing.T) {
	text, err := os.ReadFile("../docs/locks.md")
	if err != nil {
		t.Fatal(err)
	}
	checkCodes(t, section(string(text), "### What to do on each answer about a lock\n"), toldOfLocks)
}

// holdLock holds a lock until the test ends.
func holdLock(t testing.TB, s *service, name string, request client.LockRequest) *client.Lock {
	t.Helper()
	held, err := s.AcquireLock(t.Context(), name, request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Release(context.Background()) }) // the service may be away
	return held
}

func shown(t testing.TB, s *service, name string) client.LockInfo {
	t.Helper()
	info, err := s.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestLocks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		t.Run("acquired, seen, listed and released", s.lockRound)
		t.Run("held by another, then handed over", s.lockHandedOver)
		t.Run("shared and permits", s.lockTogether)
		t.Run("broken", s.lockBroken)
		t.Run("a wait whose context ends leaves nothing", s.lockNotWaitedFor)
	})
}

func (s *service) lockRound(t *testing.T) {
	before := time.Now()
	held := holdLock(t, s, "round", client.LockRequest{Owner: "me", TTL: 20 * time.Second})
	if held.Name() != "round" || held.Fence() < 1 || held.TTL() != 20*time.Second || held.Err() != nil || held.Since().IsZero() {
		t.Errorf("%+v", held)
	}
	if left := held.Validity(); left <= 0 || left > 19*time.Second-time.Since(before)+time.Millisecond && left > 19*time.Second {
		t.Errorf("it can be trusted for %v", left)
	}
	info := shown(t, s, "round")
	if info.Mode != "exclusive" || info.Fence != held.Fence() || len(info.Holders) != 1 || info.Holders[0].Owner != "me" || !info.Holders[0].Since.Equal(held.Since()) || info.Now.IsZero() {
		t.Errorf("%+v", info)
	}
	_, err := s.TryAcquireLock(t.Context(), "round", client.LockRequest{})
	if said := wantError(t, err, client.ErrHeld); said.RetryAfter <= 0 || said.RetryAfter > 20*time.Second || !said.Retryable {
		t.Errorf("%+v", said)
	}
	other := holdLock(t, s, "round:2", client.LockRequest{})
	var names []string
	for info, err := range s.Locks(t.Context(), "round") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if !slices.Equal(names, []string{"round", "round:2"}) {
		t.Errorf("%q", names)
	}
	for range 2 {
		if err := errors.Join(held.Release(t.Context()), other.Release(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(held.Err(), client.ErrLockReleased) || held.Validity() > 0 || held.Context().Err() == nil {
		t.Errorf("released: %v", held.Err())
	}
	if again := holdLock(t, s, "round", client.LockRequest{}); again.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", again.Fence(), held.Fence())
	}
}

func (s *service) lockHandedOver(t *testing.T) {
	held := holdLock(t, s, "handed", client.LockRequest{})
	_, err := s.AcquireLock(t.Context(), "handed", client.LockRequest{Wait: 50 * time.Millisecond})
	wantError(t, err, client.ErrHeld)
	got := make(chan *client.Lock, 1)
	go func() {
		next, err := s.AcquireLock(t.Context(), "handed", client.LockRequest{Owner: "next"})
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	eventually(t, "it stands in line", func() bool { return shown(t, s, "handed").Waiting == 1 })
	if queue := shown(t, s, "handed").Queue; queue[0].Owner != "next" || queue[0].Mode != "exclusive" || queue[0].Since.IsZero() {
		t.Errorf("%+v", queue)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if next := <-got; next != nil {
		if next.Fence() <= held.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), held.Fence())
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
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
	_, err = s.AcquireLock(t.Context(), "permits", client.LockRequest{Permits: 4}) // no waiting makes it four
	wantError(t, err, client.ErrOtherPool)
	if info := shown(t, s, "permits"); info.Permits != 3 || len(info.Holders) != 2 || info.Holders[1].Take != 2 {
		t.Errorf("%+v", info)
	}
}

func (s *service) lockBroken(t *testing.T) {
	held := holdLock(t, s, "broken", client.LockRequest{TTL: time.Second})
	_, err := s.BreakLock(t.Context(), "broken", held.Fence()+1)
	wantError(t, err, client.ErrNotFound)
	minted, err := s.BreakLock(t.Context(), "broken", held.Fence())
	if err != nil || minted <= held.Fence() {
		t.Errorf("%d, %v", minted, err)
	}
	<-held.Done()
	if !errors.Is(held.Err(), client.ErrLost) || errors.Is(held.Err(), client.ErrLockDeadline) {
		t.Error(held.Err())
	}
	wantError(t, held.Release(t.Context()), client.ErrLost)
}

func (s *service) lockNotWaitedFor(t *testing.T) {
	holdLock(t, s, "not-waited", client.LockRequest{})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.AcquireLock(ctx, "not-waited", client.LockRequest{})
		ended <- err
	}()
	eventually(t, "it stands in line", func() bool { return shown(t, s, "not-waited").Waiting == 1 })
	cancel(nil)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "it stands in line no more", func() bool { return shown(t, s, "not-waited").Waiting == 0 })
}

// renewals limits a fault to the renewals of locks.
func renewals(with fault) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		return r.Method == http.MethodPut && with(w, r, service)
	}
}

// Whatever the line does: the lock's context ends by this process's clock, a TTL less the margin after the last renewal that was confirmed had been sent.
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
				s.line.disturb(renewals(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if time.Now().Before(disturbed) {
						confirmed = time.Now()
						return false
					}
					return fault(w, r, service)
				}))
				<-held.Done()
				if after := time.Since(confirmed); after != trusted || !errors.Is(held.Err(), client.ErrLockDeadline) || !errors.Is(context.Cause(held.Context()), client.ErrLost) || time.Now().Before(disturbed) {
					t.Errorf("ended %v after the last renewal: %v", after, held.Err())
				}
				if name == "replies are lost" {
					return // it is renewed, and nobody hears of it
				}
				if info := shown(t, s, "deploy"); len(info.Holders) != 1 && name != "replies come late" {
					t.Errorf("the lease ended before: %+v", info)
				}
			})
		})
	}
}

// The lease of a lock that was waited for begins at a moment that nobody told: it is counted from a renewal that was sent after that.
func TestALockThatWasWaitedForIsNotTrustedForTooLong(t *testing.T) {
	for name, delay := range map[string]time.Duration{"waited": 0, "waited, and the answer was late": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				first := holdLock(t, s, "deploy", client.LockRequest{})
				time.AfterFunc(20*time.Second, func() { _ = first.Release(context.Background()) })
				var asked atomic.Int64
				s.line.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if r.Method == http.MethodPost {
						return late(delay)(w, r, service)
					}
					return r.Method == http.MethodPut && time.Since(first.Since()) >= 20*time.Second && asked.Add(1) > 1 && silent(w, r, service)
				})
				next := holdLock(t, s, "deploy", client.LockRequest{})
				began := time.Now()
				until := shown(t, s, "deploy").Holders[0].Until
				if left := next.Validity(); left != trusted || asked.Load() != 1 {
					t.Errorf("it can be trusted for %v after %d renewals", left, asked.Load())
				}
				<-next.Done()
				if after := time.Since(began); after != trusted || time.Now().After(until) {
					t.Errorf("it was trusted for %v, its lease ends %v later", after, time.Until(until))
				}
			})
		})
	}
}

// A wait goes on while the service is away for a moment, and no longer; who does not wait hears of it at once.
func TestAWaitOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.line.disturb(says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`))
		_, err := s.TryAcquireLock(t.Context(), "deploy", client.LockRequest{})
		wantError(t, err, client.ErrUnavailable)
		began := time.Now()
		_, err = s.AcquireLock(t.Context(), "deploy", client.LockRequest{})
		wantError(t, err, client.ErrUnavailable)
		if after := time.Since(began); after < 14*time.Second || after > 16*time.Second {
			t.Errorf("given up after %v", after)
		}
		began = time.Now()
		_, err = s.AcquireLock(t.Context(), "deploy", client.LockRequest{Wait: 3 * time.Second})
		wantError(t, err, client.ErrUnavailable)
		if after := time.Since(began); after != 3*time.Second {
			t.Errorf("given up after %v", after)
		}
		time.AfterFunc(10*time.Second, func() { s.line.disturb(nil) })
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
		if after := time.Since(began); after < 5*time.Minute || after > 5*time.Minute+time.Second {
			t.Errorf("given up after %v", after)
		}
		next := holdLock(t, s, "deploy", client.LockRequest{})
		if after := time.Since(began); after > 10*time.Minute+time.Second || next.Fence() <= first.Fence() {
			t.Errorf("after %v, fence %d after %d", after, next.Fence(), first.Fence())
		}
	})
}

// On a real Redis: the context ends before another has the lock, who waits for it at Redis itself.
func TestALockIsToldBeforeItIsFree(t *testing.T) {
	redis := redistest.Start(t)
	for name, fault := range map[string]fault{"service gone": hangUp, "black hole": silent} {
		t.Run(name, func(t *testing.T) {
			store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
			s := serve(t, store)
			t.Cleanup(func() { s.line.disturb(nil) })
			rivals := lock.New(store, lock.Config{})
			defer rivals.Close()
			held := holdLock(t, s, "deploy", client.LockRequest{TTL: 3 * time.Second})
			told := make(chan time.Time, 1)
			context.AfterFunc(held.Context(), func() { told <- time.Now() })
			s.line.disturb(fault)
			next, err := rivals.Acquire(t.Context(), "deploy", lock.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if at := <-told; !at.Before(next.Since()) || next.Fence() <= held.Fence() {
				t.Errorf("told %v after another had it, with fence %d after %d", at.Sub(next.Since()), next.Fence(), held.Fence())
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLockCallsThatCanNotBeMeantAreNotSent(t *testing.T) {
	s := embedded(t)
	for _, name := range []string{"", ".", "..", "a/b", "a b", "é", "a?force=1", "a%2Fb", "a\x00"} {
		_, err := s.TryAcquireLock(t.Context(), name, client.LockRequest{})
		wantError(t, err, client.ErrInvalidRequest)
		_, err = s.Lock(t.Context(), name)
		wantError(t, err, client.ErrInvalidRequest)
		_, err = s.BreakLock(t.Context(), name, 1)
		wantError(t, err, client.ErrInvalidRequest)
	}
	if n := s.line.count("status"); n != 0 {
		t.Errorf("%d requests", n)
	}
	for _, request := range []client.LockRequest{
		{TTL: time.Millisecond}, {TTL: -time.Second}, {TTL: 25 * time.Hour}, {Mode: "write"}, {Permits: -1}, {Permits: 2, Mode: "shared"}, {Permits: 2, Take: 3}, {Owner: "a b"},
	} {
		_, err := s.AcquireLock(t.Context(), "deploy", request)
		wantError(t, err, client.ErrInvalidRequest)
	}
}

// An answer that has the right status, and not what belongs into it, is no grant.
func TestAnswersThatAreNoGrantOfALock(t *testing.T) {
	const whole = `"name":"deploy","lease":"AAAAAAAAAAAAAAAAAAAAAA","fence":5,"since":"2026-01-01T00:00:00Z","ttl_ms":30000`
	for body, granted := range map[string]bool{
		"{" + whole + "}": true, `{}`: false, `null`: false, `{` + whole + `,"name":"other"}`: false, `{` + whole + `,"lease":""}`: false, `{` + whole + `,"lease":"a b"}`: false,
		`{` + whole + `,"fence":0}`: false, `{` + whole + `,"since":null}`: true, `{` + whole + `,"ttl_ms":0}`: false, `{` + whole + `,"ttl_ms":60000}`: false,
	} {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			says(map[string]int{"POST": 201, "DELETE": 204}[r.Method], "application/json", body)(w, r, nil)
		})))
		held, err := c.TryAcquireLock(t.Context(), "deploy", client.LockRequest{TTL: 30 * time.Second})
		if granted {
			if err != nil || held.Fence() != 5 {
				t.Errorf("%s: %v", body, err)
				continue
			}
			_ = held.Release(t.Context()) // of nobody
			continue
		}
		wantError(t, err, client.ErrUnknownOutcome)
	}
}
