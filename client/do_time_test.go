package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
)

// The times here are exact, too: each test runs in a bubble.

func TestAGrantThatComesTooLateIsNotBegun(t *testing.T) {
	for policy, want := range map[client.Policy]error{client.Hold: nil, client.Takeover: client.ErrSuperseded} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			s.line.disturb(only("claim", 1, late(4*time.Second)))
			work := working
			if want != nil {
				work = mustNotRun(t)
			}
			if _, err := s.Do(t.Context(), token, client.Terms{Policy: policy, Lease: 3 * time.Second}, work); !errors.Is(err, want) {
				t.Errorf("%s: %v", policy, err)
			}
			if got := state(t, s.Client, token); want != nil && got != client.Issued {
				t.Errorf("state %s", got)
			}
		})
	}
}

// The caller goes away while its claim is under way. Nothing was begun, so the token must not end in doubt.
func TestACallerWhoGoesAwayDuringTheClaim(t *testing.T) {
	for name, row := range map[string]struct {
		answer time.Duration // until the claim's answer
		ends   time.Duration // until Do does
		class  error
		state  client.State
	}{
		"the answer comes soon":         {600 * time.Millisecond, 600 * time.Millisecond, client.ErrRefused, client.Issued},
		"the answer comes after a time": {5 * time.Second, 1500 * time.Millisecond, client.ErrUnknownOutcome, client.Claimed},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token := issue(t, s.Client)
			s.line.disturb(only("claim", 1, late(row.answer)))
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := s.Do(ctx, token, client.Terms{}, mustNotRun(t))
			if after := time.Since(begun); after != row.ends || !errors.Is(err, row.class) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", name, err, after)
			}
			if got := state(t, s.Client, token); got != row.state {
				t.Errorf("%s: state %s", name, got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Do(ctx, token, client.Terms{}, mustNotRun(t))
		wantError(t, err, client.ErrRefused)
		if !errors.Is(err, context.Canceled) || s.line.count("claim") != 0 {
			t.Errorf("%v", err)
		}
	})
}

func TestWorkEndsWithItsCallerAndItsAnswerIsRecordedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result, err := s.Do(ctx, token, client.Terms{}, func(ctx context.Context, _ *client.Attempt) (client.Answer, error) {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				t.Errorf("cause %v", cause)
			}
			return done, nil // it was done by then
		})
		if err != nil || !isDone(result, false) || state(t, s.Client, token) != client.Completed {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

func TestWorkThatFailsIsLeftToItsLease(t *testing.T) {
	for name, row := range map[string]struct {
		policy client.Policy
		work   func(context.Context, *client.Attempt) (client.Answer, error)
		panics bool
	}{
		"error under hold":     {client.Hold, failing, false},
		"error under takeover": {client.Takeover, failing, false},
		"panic under hold":     {client.Hold, func(context.Context, *client.Attempt) (client.Answer, error) { panic("boom") }, true},
		"panic, though it said that it never began": {client.Hold, func(_ context.Context, attempt *client.Attempt) (client.Answer, error) {
			attempt.NotBegun()
			panic("boom")
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := bubble(t)
			token, terms := issue(t, s.Client), client.Terms{Policy: row.policy, Lease: 9 * time.Second}
			func() {
				defer func() {
					if got := recover(); (got == "boom") != row.panics {
						t.Errorf("%s: recovered %v", name, got)
					}
				}()
				if _, err := s.Do(t.Context(), token, terms, row.work); !errors.Is(err, errProvider) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			_, err := s.Do(t.Context(), token, terms, mustNotRun(t))
			wantError(t, err, client.ErrInProgress)
			time.Sleep(10 * time.Second)
			if row.policy == client.Hold {
				_, err = s.Do(t.Context(), token, terms, mustNotRun(t))
				wantError(t, err, client.ErrInDoubt)
			} else if result, err := s.Do(t.Context(), token, terms, working); err != nil || !isDone(result, false) {
				t.Errorf("%s: %+v, %v", name, result, err)
			}
			if n := s.line.count("release") + s.line.count("extend"); n != 0 {
				t.Errorf("%s: %d releases and heartbeats", name, n)
			}
		})
	}
}

func TestDoSurvivesLostRepliesToItsEnd(t *testing.T) {
	for verb, row := range map[string]struct {
		notBegun bool
		state    client.State
	}{"complete": {false, client.Completed}, "release": {true, client.Issued}} {
		for _, lose := range []fault{loseReply, hangUp, says(502, "text/html", "bad gateway"), says(503, "application/problem+json", `{"code":"store-unavailable"}`)} {
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t)
				token := issue(t, s.Client)
				s.line.disturb(only(verb, 2, lose))
				result, err := s.Do(t.Context(), token, client.Terms{}, func(_ context.Context, attempt *client.Attempt) (client.Answer, error) {
					if row.notBegun {
						attempt.NotBegun()
					}
					return done, nil
				})
				if err != nil || !isDone(result, false) {
					t.Errorf("%s: %+v, %v", verb, result, err)
				}
				if got, n := state(t, s.Client, token), s.line.count(verb); got != row.state || n != 3 {
					t.Errorf("%s: state %s after %d requests", verb, got, n)
				}
			})
		}
	}
}

// Recording is tried for a while, and then the caller is told, with the answer.
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
			s.line.disturb(only("complete", 0, row.fault))
			begun := time.Now()
			result, err := s.Do(t.Context(), token, client.Terms{Lease: time.Hour}, working)
			wantError(t, err, client.ErrUnknownOutcome)
			if !errors.Is(err, client.ErrNotRecorded) || !isDone(result, false) {
				t.Errorf("%s: %+v, %v", name, result, err)
			}
			if after, n := time.Since(begun), s.line.count("complete"); after != row.after || n != row.tries {
				t.Errorf("%s: %d tries in %v", name, n, after)
			}
			if got := state(t, s.Client, token); got != client.Claimed {
				t.Errorf("%s: state %s", name, got)
			}
		})
	}
}

// Whether the client's time runs out, the caller's or that of its own http.Client: what was sent may have been done.
func TestATimeoutAfterSendingIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		token := issue(t, s.Client)
		s.line.disturb(silent)
		wanted := func(ctx context.Context, span time.Duration, cause error) {
			begun := time.Now()
			_, err := s.Claim(ctx, token, client.Terms{})
			wantError(t, err, client.ErrUnknownOutcome)
			if after := time.Since(begun); after != span || !errors.Is(err, cause) {
				t.Errorf("%v after %v", err, after)
			}
			_, err = s.Status(ctx, token)
			wantError(t, err, client.ErrRefused)
		}
		wanted(t.Context(), 10*time.Second, context.DeadlineExceeded)
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
		for limit, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 6 * time.Second: 6 * time.Second} { // of the caller's http.Client
			c := connect(t, "http://127.0.0.1", func(config *client.Config) {
				config.HTTPClient, config.Timeout = &http.Client{Transport: hung, Timeout: limit}, 0
			})
			begun := time.Now()
			_, err := c.Issue(t.Context(), "", 0)
			wantError(t, err, client.ErrUnavailable)
			if time.Since(begun) != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		}
	})
}
