package client_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Every test here runs in a bubble where time passes only while all goroutines wait, so the times
// are exact.

// attempt runs Do in the background and returns what becomes of it.
func (s *service) attempt(ctx context.Context, token string, terms client.ClaimOptions, work func(context.Context, *client.Attempt) ([]byte, error)) <-chan ended {
	result := make(chan ended, 1)
	go func() {
		got, err := s.Do(ctx, token, terms, work)
		result <- ended{got, err}
	}()
	return result
}

type ended struct {
	client.Result

	err error
}

// whenLost works until its context ends, and returns why and when that was.
func whenLost(causes chan<- error, at *time.Time) func(context.Context, *client.Attempt) ([]byte, error) {
	return func(ctx context.Context, _ *client.Attempt) ([]byte, error) {
		<-ctx.Done()
		*at = time.Now()
		causes <- context.Cause(ctx)
		return done.Body, nil // it did not check why
	}
}

func sleeping(span time.Duration) func(context.Context, *client.Attempt) ([]byte, error) {
	return func(ctx context.Context, _ *client.Attempt) ([]byte, error) {
		select {
		case <-time.After(span):
			return done.Body, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestHeartbeatKeepsALongWorkersClaim(t *testing.T) {
	for _, policy := range []client.Policy{client.PolicyHold, client.PolicyTakeover} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			first := s.attempt(t.Context(), token, client.ClaimOptions{Policy: policy, Lease: 10 * time.Second}, sleeping(20*time.Minute))
			for range 15 {
				time.Sleep(time.Minute)
				_, err := s.Do(t.Context(), token, client.ClaimOptions{Policy: policy}, mustNotRun(t))
				wantError(t, err, client.ErrInProgress)
			}
			got := <-first
			isDone(t, "Do that worked for 20 minutes", got.Result, got.err, false)
			result, err := s.Do(t.Context(), token, client.ClaimOptions{}, mustNotRun(t))
			isDone(t, "Do afterwards", result, err, true)
			if n := s.proxy.count("extend"); n < 330 || n > 365 {
				t.Errorf("%d heartbeats in 20 minutes, want 330 to 365: one each 3.3 s", n)
			}
		})
	}
}

// The service falls silent in the middle: from the lease's end on another attempt may run, as far
// as this process can know.
func TestUnderTakeoverWorkEndsByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token, terms := issue(t, s.Client), client.ClaimOptions{Policy: client.PolicyTakeover, Lease: 9 * time.Second}
		causes, at, begun := make(chan error, 1), time.Time{}, time.Now()
		first := s.attempt(t.Context(), token, terms, whenLost(causes, &at))
		time.Sleep(7 * time.Second) // two heartbeats got through, the last after 6 s
		s.proxy.disturb(only("extend", 0, silent))
		expect.Error(t, "the cause of the function's context", <-causes, client.ErrSuperseded)
		if after := at.Sub(begun); after != 15*time.Second {
			t.Errorf("it ended after %v, one lease after the last heartbeat was at 15 s", after)
		}
		// No other attempt has taken over: the answer is still the true owner's to record.
		got := <-first
		isDone(t, "Do that was not superseded", got.Result, got.err, false)
	})
}

// Trust counts from before a request was sent, however late its answer comes.
func TestUnderTakeoverTrustCountsFromBeforeSending(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault
		ends  time.Duration
	}{
		"the claim":                   {only("claim", 1, late(4*time.Second)), 9 * time.Second},
		"a heartbeat, sent after 3 s": {only("extend", 1, late(2*time.Second)), 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			answered := false // a heartbeat
			s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
				if row.fault(w, r, service) {
					answered = verb(r) == "extend"
					return true
				}
				return verb(r) == "extend" && silent(w, r, service)
			})
			causes, at, begun := make(chan error, 1), time.Time{}, time.Now()
			got := <-s.attempt(t.Context(), token, client.ClaimOptions{Policy: client.PolicyTakeover, Lease: 9 * time.Second}, whenLost(causes, &at))
			succeeds(t, "Do, late: "+name, got.err)
			expect.Equal(t, "when the function's context ended, late: "+name, at.Sub(begun), row.ends)
			expect.Equal(t, "whether a heartbeat was answered, late: "+name, answered, row.ends > 9*time.Second)
		})
	}
}

func TestAnAttemptThatIsTakenOverIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token, terms := issue(t, s.Client), client.ClaimOptions{Policy: client.PolicyTakeover, Lease: 3 * time.Second}
		s.proxy.disturb(only("extend", 0, hangUp))
		causes, at := make(chan error, 1), time.Time{}
		first := s.attempt(t.Context(), token, terms, func(ctx context.Context, attempt *client.Attempt) ([]byte, error) {
			answer, err := whenLost(causes, &at)(ctx, attempt)
			time.Sleep(time.Minute) // it is slow to end
			return answer, err
		})
		<-causes
		time.Sleep(time.Second)
		heir := []byte("heir")
		result, err := s.Do(t.Context(), token, terms, func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
			expect.Equal(t, "the number of the attempt that takes over", attempt.Number, 2)
			return heir, nil
		})
		succeeds(t, "Do that takes over", err)
		expect.Equal(t, "Do that takes over", string(result.Value), "heir")
		got := <-first
		wantError(t, got.err, client.ErrSuperseded)
		expect.Equal(t, "Do that was superseded", got.Result, client.Result{})
		result, err = s.Do(t.Context(), token, terms, mustNotRun(t))
		succeeds(t, "Do afterwards", err)
		expect.Equal(t, "Do afterwards", string(result.Value), "heir")
	})
}

// The heartbeat's answer ends the work under either policy.
func TestWorkEndsWhenTheServiceSaysThatTheClaimIsLost(t *testing.T) {
	for code, want := range map[string]error{"idempotency-superseded": client.ErrSuperseded, "idempotency-token-unknown": client.ErrUnknownToken, "operation-unknown": client.ErrUnknownOperation} {
		for _, policy := range []client.Policy{client.PolicyHold, client.PolicyTakeover} {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				s.proxy.disturb(only("extend", 0, says(409, "application/problem+json", `{"code":"`+code+`"}`)))
				begun := time.Now()
				_, err := s.Do(t.Context(), issue(t, s.Client), client.ClaimOptions{Policy: policy, Lease: 9 * time.Second}, func(ctx context.Context, _ *client.Attempt) ([]byte, error) {
					<-ctx.Done()
					expect.Equal(t, "when the function's context ended, on "+code, time.Since(begun), 3*time.Second)
					expect.Error(t, "the cause of the function's context, on "+code, context.Cause(ctx), want)
					return nil, errProvider
				})
				expect.Error(t, "the function's error, on "+code, ofWork(t, err), errProvider)
				expect.Error(t, "Do, on "+code, err, client.ErrLost)
				expect.Equal(t, "classes of Do's error, on "+code, classesOf(err), 1)
				expect.Equal(t, "heartbeats, on "+code, s.proxy.count("extend"), 1)
			})
		}
	}
}

func TestUnderHoldWorkGoesOnWhileTheServiceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		s.proxy.disturb(only("extend", 0, silent))
		first := s.attempt(t.Context(), token, client.ClaimOptions{Lease: 9 * time.Second}, sleeping(time.Minute))
		time.Sleep(30 * time.Second)
		_, err := s.Do(t.Context(), token, client.ClaimOptions{}, mustNotRun(t))
		wantError(t, err, client.ErrInDoubt)
		got := <-first
		isDone(t, "Do while the service is silent", got.Result, got.err, false)
		result, err := s.Do(t.Context(), token, client.ClaimOptions{}, mustNotRun(t))
		isDone(t, "Do after the late answer", result, err, true)
	})
}

// A heartbeat that hangs makes room for the next one, which saves the claim.
func TestAHeartbeatThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		s.proxy.disturb(only("extend", 1, silent))
		result, err := s.Do(t.Context(), issue(t, s.Client), client.ClaimOptions{Policy: client.PolicyTakeover, Lease: 9 * time.Second}, sleeping(14*time.Second))
		isDone(t, "Do with one heartbeat that hangs", result, err, false)
	})
}

// stubborn is a transport whose heartbeats take a while, also when they are given up.
type stubborn struct {
	http.RoundTripper

	under atomic.Int64
}

func (s *stubborn) RoundTrip(request *http.Request) (*http.Response, error) {
	if verb(request) == "extend" {
		s.under.Add(1)
		defer s.under.Add(-1)
		time.Sleep(5 * time.Second)
	}
	return s.RoundTripper.RoundTrip(request)
}

func TestDoReturnsWhenNoHeartbeatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		slow := &stubborn{RoundTripper: s.wires}
		c := connect(t, "http://127.0.0.1", func(config *client.Config) { config.HTTPClient = &http.Client{Transport: slow} })
		for _, work := range []func(context.Context, *client.Attempt) ([]byte, error){
			sleeping(4 * time.Second),
			func(context.Context, *client.Attempt) ([]byte, error) {
				time.Sleep(4 * time.Second)
				panic("boom")
			},
		} {
			func() {
				defer func() {
					if n := slow.under.Load(); n != 0 {
						t.Errorf("%d heartbeats are under way when Do has returned, want none", n)
					}
					_ = recover() // it panicked, or not
				}()
				_, _ = c.Do(t.Context(), issue(t, c), client.ClaimOptions{Lease: 9 * time.Second}, work)
			}()
		}
	})
}

// Work may take its time to end after its caller has gone. Until then the claim is in use.
func TestHeartbeatOutlivesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token, terms := issue(t, s.Client), client.ClaimOptions{Policy: client.PolicyTakeover, Lease: 9 * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		first := s.attempt(ctx, token, terms, func(ctx context.Context, _ *client.Attempt) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			expect.Error(t, "the cause of the function's context", context.Cause(ctx), context.Canceled)
			return done.Body, nil
		})
		time.Sleep(time.Second)
		cancel()
		time.Sleep(50 * time.Second)
		_, err := s.Do(t.Context(), token, terms, mustNotRun(t))
		wantError(t, err, client.ErrInProgress)
		got := <-first
		isDone(t, "Do whose caller has gone", got.Result, got.err, false)
	})
}
