package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The times here are exact, too: each test runs in a bubble.

func TestAGrantThatComesTooLateIsNotBegun(t *testing.T) {
	for policy, want := range map[client.Policy]error{client.PolicyHold: nil, client.PolicyTakeover: client.ErrSuperseded} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			s.proxy.disturb(only("claim", 1, late(4*time.Second)))
			work := working
			if want != nil {
				work = mustNotRun(t)
			}
			_, err := s.Do(t.Context(), token, client.ClaimOptions{Policy: policy, Lease: 3 * time.Second}, work)
			expect.Error(t, "Do under "+string(policy), err, want)
			if want != nil {
				expect.Equal(t, "the token's state after a grant that came too late", state(t, s.Client, token), api.StateIssued)
			}
		})
	}
}

// The caller goes away while its claim is under way. Nothing was begun, so the token must not end
// in doubt.
func TestACallerThatGoesAwayDuringTheClaim(t *testing.T) {
	for name, row := range map[string]struct {
		answer time.Duration // until the claim's answer
		ends   time.Duration // until Do does
		class  error
		state  api.State
	}{
		"the answer comes soon":         {600 * time.Millisecond, 600 * time.Millisecond, client.ErrRefused, api.StateIssued},
		"the answer comes after a time": {5 * time.Second, 1500 * time.Millisecond, client.ErrUnknownOutcome, api.StateIssued},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			s.proxy.disturb(only("claim", 1, late(row.answer)))
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := s.Do(ctx, token, client.ClaimOptions{}, mustNotRun(t))
			expect.Equal(t, name+": how long Do took", time.Since(begun), row.ends)
			expect.Error(t, name+": Do", err, row.class)
			expect.Error(t, name+": Do", err, context.DeadlineExceeded)
			expect.Equal(t, name+": the token's state", state(t, s.Client, token), row.state)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Do(ctx, token, client.ClaimOptions{}, mustNotRun(t))
		wantError(t, err, client.ErrRefused)
		expect.Error(t, "Do with a context that has ended", err, context.Canceled)
		expect.Equal(t, "claims sent", s.proxy.count("claim"), 0)
	})
}

func TestWorkEndsWithItsCallerAndItsAnswerIsRecordedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result, err := s.Do(ctx, token, client.ClaimOptions{}, func(ctx context.Context, _ *client.Attempt) ([]byte, error) {
			<-ctx.Done()
			expect.Error(t, "the cause of the function's context", context.Cause(ctx), context.DeadlineExceeded)
			return done.Body, nil // it was done by then
		})
		isDone(t, "Do whose caller has gone", result, err, false)
		expect.Equal(t, "the token's state", state(t, s.Client, token), api.StateCompleted)
	})
}

func TestWorkThatFailsIsLeftToItsLease(t *testing.T) {
	for name, row := range map[string]struct {
		policy client.Policy
		work   func(context.Context, *client.Attempt) ([]byte, error)
		panics bool
	}{
		"error under hold":     {client.PolicyHold, failing, false},
		"error under takeover": {client.PolicyTakeover, failing, false},
		"panic under hold":     {client.PolicyHold, func(context.Context, *client.Attempt) ([]byte, error) { panic("boom") }, true},
		"panic, though it said that it never began": {client.PolicyHold, func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
			attempt.Release()
			panic("boom")
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token, terms := issue(t, s.Client), client.ClaimOptions{Policy: row.policy, Lease: 9 * time.Second}
			func() {
				defer func() {
					if got := recover(); (got == "boom") != row.panics {
						t.Errorf("%s: recovered %v, want the panic of the function if it did", name, got)
					}
				}()
				_, err := s.Do(t.Context(), token, terms, row.work)
				expect.Error(t, name+": the function's error", ofWork(t, err), errProvider)
			}()
			_, err := s.Do(t.Context(), token, terms, mustNotRun(t))
			wantError(t, err, client.ErrInProgress)
			time.Sleep(10 * time.Second)
			if row.policy == client.PolicyHold {
				_, err = s.Do(t.Context(), token, terms, mustNotRun(t))
				wantError(t, err, client.ErrInDoubt)
			} else {
				result, err := s.Do(t.Context(), token, terms, working)
				isDone(t, name+": Do after the lease", result, err, false)
			}
			expect.Equal(t, name+": releases and heartbeats", s.proxy.count("release")+s.proxy.count("extend"), 0)
		})
	}
}

func TestDoSurvivesLostRepliesToItsEnd(t *testing.T) {
	for verb, row := range map[string]struct {
		notBegun bool
		state    api.State
	}{"complete": {false, api.StateCompleted}, "release": {true, api.StateIssued}} {
		for _, lose := range []fault{loseReply, hangUp, says(502, "text/html", "bad gateway"), says(503, "application/problem+json", `{"code":"store-unavailable"}`)} {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				token := issue(t, s.Client)
				s.proxy.disturb(only(verb, 2, lose))
				result, err := s.Do(t.Context(), token, client.ClaimOptions{}, func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
					if row.notBegun {
						attempt.Release()
					}
					return done.Body, nil
				})
				isDone(t, "Do that loses two replies to "+verb, result, err, false)
				expect.Equal(t, "the token's state after two lost replies to "+verb, state(t, s.Client, token), row.state)
				expect.Equal(t, "requests to "+verb, s.proxy.count(verb), 3)
			})
		}
	}
}

// Recording is tried for a while, and then the caller gets an error, with the answer.
func TestDoGivesUpRecordingAfterAWhile(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault
		tries int
		after time.Duration
	}{
		"away":    {hangUp, 8, 7100 * time.Millisecond},
		"hanging": {silent, 3, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			s.proxy.disturb(only("complete", 0, row.fault))
			begun := time.Now()
			result, err := s.Do(t.Context(), token, client.ClaimOptions{Lease: time.Hour}, working)
			expect.Error(t, name+": Do", err, client.ErrUnknownOutcome)
			expect.Error(t, name+": Do", err, client.ErrNotRecorded)
			isDone(t, name+": Do", result, nil, false)
			expect.Equal(t, name+": how long Do tried", time.Since(begun), row.after)
			expect.Equal(t, name+": requests to record", s.proxy.count("complete"), row.tries)
			expect.Equal(t, name+": the token's state", state(t, s.Client, token), api.StateClaimed)
		})
	}
}

// Whether the client's time runs out, the caller's or that of its own http.Client: what was sent
// may have been done.
func TestATimeoutAfterSendingIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		s.proxy.disturb(silent)
		wanted := func(ctx context.Context, span time.Duration, cause error) {
			begun := time.Now()
			_, err := s.Claim(ctx, token, client.ClaimOptions{})
			wantError(t, err, client.ErrUnknownOutcome)
			expect.Equal(t, "how long Claim waited for a silent service", time.Since(begun), span)
			expect.Error(t, "Claim of a silent service", err, cause)
			_, err = s.Status(ctx, token)
			wantError(t, err, client.ErrRefused)
		}
		// a second request, after a tenth of a second
		wanted(t.Context(), 20100*time.Millisecond, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		wanted(ctx, 3*time.Second, context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		wanted(ctx, 2*time.Second, context.Canceled)
	})
}

func TestADialThatTakesTooLongIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		// of the caller's http.Client
		for limit, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 6 * time.Second: 6 * time.Second} {
			c := connect(t, "http://127.0.0.1", func(config *client.Config) {
				config.HTTPClient, config.Timeout = &http.Client{Transport: hung, Timeout: limit}, 0
			})
			begun := time.Now()
			_, err := c.Issue(t.Context(), "", 0)
			wantError(t, err, client.ErrUnavailable, "limit", limit)
			expect.Equal(t, fmt.Sprintf("how long a dial took with a limit of %v", limit), time.Since(begun), want)
			expect.Error(t, "Issue whose dial hangs", err, context.DeadlineExceeded)
		}
	})
}
