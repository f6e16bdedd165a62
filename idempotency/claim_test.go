package idempotency

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var answer = Answer{Status: 201, Body: []byte("done")}

func TestTokenGoesThroughItsStates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		key := issue(t, tokens, "")
		wantState(t, tokens, key, StateIssued)

		grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
		wantState(t, tokens, key, StateClaimed)
		if grant.Fence <= 0 || grant.Attempt != 1 || grant.LeaseToken == "" {
			t.Errorf("Claim: got grant %+v, want attempt 1, with a positive fence and an owner", grant)
		}
		if until, err := tokens.Extend(t.Context(), key, grant.LeaseToken, 2*time.Hour); err != nil || !until.After(grant.Until) {
			t.Errorf("Extend by two hours: got %v and error %v, want later than %v", until, err, grant.Until)
		}
		for range 2 { // a lost reply may be asked for again
			expect.Error(t, "Complete", tokens.Complete(t.Context(), key, grant.LeaseToken, answer), nil)
		}
		wantState(t, tokens, key, StateCompleted)

		outcome, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Claim of a completed token", err, nil)
		expect.Equal(t, "Claim of a completed token", outcome, Outcome{Answer: answer}, cmpopts.EquateEmpty())
		_, err = tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "other"})
		expect.Error(t, "Claim with another fingerprint", err, ErrMismatch)
	})
}

func TestClaimReportsARunningAttempt(t *testing.T) {
	tokens := embeddedTokens(t)
	key := Key{Scope: "r", ID: "k"}
	claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})

	_, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
	if left := redisstore.RetryAfter(err); !errors.Is(err, ErrInProgress) || left <= 0 || left > time.Hour {
		t.Errorf("a second Claim: got error %v, want ErrInProgress with up to an hour left", err)
	}
	expect.Error(t, "a second Claim", err, redisstore.ErrRefused)
	_, err = tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "g"})
	expect.Error(t, "Claim with another payload", err, ErrMismatch)
}

func TestSameOwnerAskingAgainGetsTheSameGrant(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		key := issue(t, tokens, "")
		options := ClaimOptions{Fingerprint: "f", Lease: time.Hour}
		first, err := tokens.claim(t.Context(), key, options, "owner")
		expect.NoError(t, "a first claim", err)
		again, err := tokens.claim(t.Context(), key, options, "owner")
		expect.Error(t, "the same claim again", err, nil)
		expect.Equal(t, "attempt of the same claim again", again.Grant.Attempt, 1)
		expect.Equal(t, "fence of the same claim again", again.Grant.Fence, first.Grant.Fence)
	})
}

func TestOnlyIssuedTokensCanBeClaimedAsTokens(t *testing.T) {
	tokens := embeddedTokens(t)
	_, err := tokens.Claim(t.Context(), IssuedToken("", "never"), ClaimOptions{Fingerprint: "f"})
	expect.Error(t, "Claim of a token that was never issued", err, ErrUnknownToken)
	_, err = tokens.Status(t.Context(), IssuedToken("", "never"))
	expect.Error(t, "Status of a token that was never issued", err, ErrUnknownToken)
}

func TestScopeOfATokenMustFitTheRoute(t *testing.T) {
	tokens := embeddedTokens(t)
	for _, row := range []struct {
		token, route string
		fits         bool
	}{{"", "", true}, {"", "a", true}, {"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"a", AnyScope, true}} {
		_, err := tokens.Claim(t.Context(), issue(t, tokens, row.token), ClaimOptions{Fingerprint: "f", Scope: row.route})
		want := ErrMismatch
		if row.fits {
			want = nil
		}
		expect.Error(t, fmt.Sprintf("Claim of a token of scope %q on a route of %q", row.token, row.route), err, want)
	}
}

func TestClaimOptionsOutOfBoundsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	tokens := embeddedTokens(t)
	key := issue(t, tokens, "")
	for _, options := range []ClaimOptions{{Policy: "maybe"}, {Lease: time.Millisecond}, {Lease: 25 * time.Hour}, {Retention: -1}, {Retention: 31 * 24 * time.Hour}} {
		if _, err := tokens.Claim(t.Context(), key, options); err == nil {
			t.Errorf("Claim with %+v: got no error", options)
		}
	}
	wantState(t, tokens, key, StateIssued)
	for _, ttl := range []time.Duration{time.Millisecond, -1, 100 * 365 * 24 * time.Hour} {
		if _, err := tokens.Issue(t.Context(), "", "", ttl); err == nil {
			t.Errorf("Issue with a ttl of %v: got no error", ttl)
		}
	}
}

// What becomes of a lapsed claim, by the policy it was made under and that of the next request:
// only takeover twice lets another attempt begin.
func TestLapsedClaim(t *testing.T) {
	for _, row := range []struct {
		first, next Policy
		taken       bool
	}{{PolicyHold, PolicyHold, false}, {PolicyHold, PolicyTakeover, false}, {PolicyTakeover, PolicyHold, false}, {PolicyTakeover, PolicyTakeover, true}} {
		t.Run(fmt.Sprintf("%s then %s", row.first, row.next), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := embeddedTokens(t)
				key := issue(t, tokens, "")
				old := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Policy: row.first, Lease: time.Second})
				time.Sleep(1100 * time.Millisecond)
				wantState(t, tokens, key, StateInDoubt)

				outcome, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f", Policy: row.next})
				if !row.taken {
					expect.Error(t, "Claim after the lease", err, ErrInDoubt)
					expect.Error(t, "Complete by a late owner that was not replaced", tokens.Complete(t.Context(), key, old.LeaseToken, answer), nil)
					wantState(t, tokens, key, StateCompleted)
					return
				}
				if err != nil || outcome.Grant.Attempt != 2 || outcome.Grant.Fence <= old.Fence {
					t.Fatalf("Claim after the lease: got %+v and error %v, want attempt 2 with a fence over %d", outcome, err, old.Fence)
				}
				for name, err := range map[string]error{
					"complete": tokens.Complete(t.Context(), key, old.LeaseToken, answer),
					"release":  tokens.Release(t.Context(), key, old.LeaseToken),
				} {
					expect.Error(t, name+" by the superseded owner", err, ErrSuperseded)
					expect.Error(t, name+" by the superseded owner", err, redisstore.ErrLost)
				}
				_, err = tokens.Extend(t.Context(), key, old.LeaseToken, time.Minute)
				expect.Error(t, "extend by the superseded owner", err, ErrSuperseded)
				wantState(t, tokens, key, StateClaimed)
			})
		})
	}
}

func TestLapsedClaimHasExactlyOneHeirAmongManyRetries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		options := ClaimOptions{Fingerprint: "f", Policy: PolicyTakeover, Lease: time.Hour}
		key := issue(t, tokens, "")
		old := claim(t, tokens, key, options)
		lapse(t, tokens, tokens.keys(key)[0])
		wantState(t, tokens, key, StateInDoubt)
		var heirs atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				outcome, err := tokens.Claim(t.Context(), key, options)
				if err == nil && outcome.Granted && outcome.Grant.Fence > old.Fence {
					heirs.Add(1)
				} else if !errors.Is(err, ErrInProgress) {
					t.Errorf("Claim after the lease: got %+v and error %v, want a larger fence than %d, or %v", outcome, err, old.Fence, ErrInProgress)
				}
			})
		}
		wg.Wait()
		expect.Equal(t, "grants after the lease", heirs.Load(), 1)
	})
}

func TestExtendWithoutALeaseKeepsTheOneOfTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		key := issue(t, tokens, "")
		grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
		time.Sleep(time.Minute)
		if until, err := tokens.Extend(t.Context(), key, grant.LeaseToken, 0); err != nil || until.Sub(grant.Until) != time.Minute {
			t.Errorf("Extend a minute after the grant: got %v and error %v, want a minute after %v", until, err, grant.Until)
		}
		expect.Error(t, "Abandon", tokens.Abandon(t.Context(), key, grant.LeaseToken), nil)
		wantState(t, tokens, key, StateInDoubt)
	})
}

func TestReleaseGivesTheTokenBack(t *testing.T) {
	tokens := embeddedTokens(t)
	key := issue(t, tokens, "")
	first := claim(t, tokens, key, ClaimOptions{Fingerprint: "f"})
	for range 2 {
		expect.Error(t, "Release", tokens.Release(t.Context(), key, first.LeaseToken), nil)
	}
	wantState(t, tokens, key, StateIssued)
	second := claim(t, tokens, key, ClaimOptions{Fingerprint: "another request"})
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Errorf("Claim after Release: got %+v, want attempt 2 with a fence over %d", second, first.Fence)
	}
	expect.Error(t, "Complete by an owner that released", tokens.Complete(t.Context(), key, first.LeaseToken, answer), ErrSuperseded)
}

func TestTokensExpireAndAnswersStayForTheirRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		unused, err := tokens.Issue(t.Context(), "", "", time.Minute)
		if err != nil || time.Until(unused.ExpiresAt) > time.Minute {
			t.Fatalf("Issue for a minute: got %+v and error %v, want it to expire within that", unused, err)
		}
		used := issue(t, tokens, "")
		grant := claim(t, tokens, used, ClaimOptions{Fingerprint: "f", Retention: 48 * time.Hour})
		expect.Error(t, "Complete", tokens.Complete(t.Context(), used, grant.LeaseToken, answer), nil)
		time.Sleep(2 * time.Minute)
		_, err = tokens.Status(t.Context(), IssuedToken("", unused.Value))
		expect.Error(t, "Status of a token past its ttl", err, ErrUnknownToken)
		time.Sleep(47 * time.Hour)
		wantState(t, tokens, used, StateCompleted)
		time.Sleep(2 * time.Hour)
		_, err = tokens.Claim(t.Context(), used, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Claim of a token past its retention", err, ErrUnknownToken)
	})
}

// A name in place of the secret, as of a service with two workers, made both the owner of one
// claim.
func TestALeaseTokenThatPeopleChoseIsRefused(t *testing.T) {
	t.Parallel()
	tokens := embeddedTokens(t)
	key := Key{Scope: "orders", ID: "42"}
	for _, name := range []string{"orders-service-eu", "worker-1-of-orders-in-eu", NewLeaseToken() + "x"} {
		_, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f", LeaseToken: name})
		expect.Contains(t, "error of Claim with the lease token "+name, fmt.Sprint(err), "NewLeaseToken")
	}
	mine := NewLeaseToken()
	for _, row := range []struct {
		leaseToken string
		want       error
	}{{mine, nil}, {mine, nil}, {NewLeaseToken(), ErrInProgress}} {
		_, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f", Lease: time.Hour, LeaseToken: row.leaseToken})
		expect.Error(t, "Claim with "+row.leaseToken, err, row.want)
	}
}

// What proves an attempt is compared whole: a text with the words that follow it in the record, of
// an operation that nobody holds, proves nothing.
func TestLeaseTokenWithWordsOfTheRecordProvesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		for _, decision := range []Decision{DecisionRefused, DecisionHappened} {
			key := Key{ID: string(decision)}
			grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f"})
			expect.NoError(t, "Abandon", tokens.Abandon(t.Context(), key, grant.LeaseToken))
			doubtful, err := tokens.Status(t.Context(), key)
			expect.NoError(t, "Status", err)
			expect.NoError(t, "Settle", tokens.Settle(t.Context(), key.Operation(), Settlement{Decision: decision, Answer: Answer{Status: 200}}))
			settled, err := tokens.Status(t.Context(), key)
			expect.NoError(t, "Status", err)

			guess := fmt.Sprint("\t", doubtful.Until.UnixMilli())
			expect.Error(t, "Complete", tokens.Complete(t.Context(), key, guess, Answer{Status: 201}), ErrSuperseded)
			expect.Error(t, "Abandon", tokens.Abandon(t.Context(), key, guess), ErrSuperseded)
			_, err = tokens.Extend(t.Context(), key, guess, 0)
			expect.Error(t, "Extend", err, ErrSuperseded)
			expect.Error(t, "Release", tokens.Release(t.Context(), key, guess), ErrSuperseded)
			wantState(t, tokens, key, settled.State)
		}
	})
}
