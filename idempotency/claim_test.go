package idempotency

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var answer = Answer{Status: 201, Body: []byte("done")}

func TestTokenGoesThroughItsLife(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		ref := issue(t, tokens, "")
		wantState(t, tokens, ref, Issued)

		grant := claim(t, tokens, ref, Terms{Fingerprint: "f"})
		wantState(t, tokens, ref, Claimed)
		if grant.Fence <= 0 || grant.Attempt != 1 || grant.Owner == "" {
			t.Errorf("grant %+v", grant)
		}
		if until, err := tokens.Extend(t.Context(), ref, grant.Owner, time.Minute, 0); err != nil || !until.After(grant.Until) {
			t.Errorf("extended to %v, %v; was %v", until, err, grant.Until)
		}
		for range 2 { // a lost reply may be asked for again
			if err := tokens.Complete(t.Context(), ref, grant.Owner, answer, 0); err != nil {
				t.Fatal(err)
			}
		}
		wantState(t, tokens, ref, Completed)

		outcome, err := tokens.Claim(t.Context(), ref, Terms{Fingerprint: "f"})
		if err != nil || outcome.Granted || string(outcome.Answer.Body) != "done" || outcome.Answer.Status != 201 {
			t.Errorf("replay %+v, %v", outcome, err)
		}
		if _, err := tokens.Claim(t.Context(), ref, Terms{Fingerprint: "other"}); !errors.Is(err, ErrMismatch) {
			t.Errorf("another fingerprint: %v", err)
		}
	})
}

func TestClaimTellsTheTruthWhileAnAttemptRuns(t *testing.T) {
	tokens := embeddedTokens(t)
	ref := ClientKey("", "r", "k")
	claim(t, tokens, ref, Terms{Fingerprint: "f", Lease: 10 * time.Second})

	_, err := tokens.Claim(t.Context(), ref, Terms{Fingerprint: "f"})
	var busy *InProgress
	if !errors.As(err, &busy) || busy.Left <= 0 || busy.Left > 10*time.Second || !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("a second claim: %v", err)
	}
	if _, err := tokens.Claim(t.Context(), ref, Terms{Fingerprint: "g"}); !errors.Is(err, ErrMismatch) {
		t.Errorf("another payload: %v", err)
	}
}

func TestSameOwnerAskingAgainGetsTheSameGrant(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		ref := issue(t, tokens, "")
		first, err := tokens.claim(t.Context(), ref, Terms{Fingerprint: "f"}, "owner")
		if err != nil {
			t.Fatal(err)
		}
		again, err := tokens.claim(t.Context(), ref, Terms{Fingerprint: "f"}, "owner")
		if err != nil || again.Grant.Fence != first.Grant.Fence || again.Grant.Attempt != 1 {
			t.Errorf("asked again: %+v, %v; first %+v", again.Grant, err, first.Grant)
		}
	})
}

func TestOnlyIssuedTokensCanBeClaimedAsTokens(t *testing.T) {
	tokens := embeddedTokens(t)
	if _, err := tokens.Claim(t.Context(), IssuedToken("", "never"), Terms{Fingerprint: "f"}); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("claim: %v", err)
	}
	if _, err := tokens.Status(t.Context(), IssuedToken("", "never")); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("status: %v", err)
	}
}

func TestScopeOfATokenMustFitTheRoute(t *testing.T) {
	tokens := embeddedTokens(t)
	for _, row := range []struct {
		token, route string
		fits         bool
	}{{"", "", true}, {"", "a", true}, {"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"a", AnyScope, true}} {
		_, err := tokens.Claim(t.Context(), issue(t, tokens, row.token), Terms{Fingerprint: "f", Scope: row.route})
		if row.fits != (err == nil) || !row.fits && !errors.Is(err, ErrMismatch) {
			t.Errorf("token of %q on a route of %q: %v", row.token, row.route, err)
		}
	}
}

func TestTermsOutOfBoundsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	tokens := embeddedTokens(t)
	ref := issue(t, tokens, "")
	for _, terms := range []Terms{{Policy: "maybe"}, {Lease: time.Millisecond}, {Lease: 25 * time.Hour}, {Retention: -1}, {Retention: 31 * 24 * time.Hour}} {
		if _, err := tokens.Claim(t.Context(), ref, terms); err == nil {
			t.Errorf("%+v was taken", terms)
		}
	}
	wantState(t, tokens, ref, Issued)
	for _, ttl := range []time.Duration{time.Millisecond, -1, 100 * 365 * 24 * time.Hour} {
		if _, err := tokens.Issue(t.Context(), "", "", ttl); err == nil {
			t.Errorf("a ttl of %v was taken", ttl)
		}
	}
}

// What a lapsed claim comes to, by the policy it was made under and that of the next request: only takeover twice lets another attempt begin.
func TestLapsedClaim(t *testing.T) {
	for _, row := range []struct {
		first, next Policy
		taken       bool
	}{{Hold, Hold, false}, {Hold, Takeover, false}, {Takeover, Hold, false}, {Takeover, Takeover, true}} {
		t.Run(fmt.Sprintf("%s then %s", row.first, row.next), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := embeddedTokens(t)
				ref := issue(t, tokens, "")
				old := claim(t, tokens, ref, Terms{Fingerprint: "f", Policy: row.first, Lease: time.Second})
				time.Sleep(1100 * time.Millisecond)
				wantState(t, tokens, ref, InDoubt)

				outcome, err := tokens.Claim(t.Context(), ref, Terms{Fingerprint: "f", Policy: row.next})
				if !row.taken {
					if !errors.Is(err, ErrInDoubt) {
						t.Fatalf("%+v, %v", outcome, err)
					}
					if err := tokens.Complete(t.Context(), ref, old.Owner, answer, 0); err != nil {
						t.Errorf("a late owner that nobody replaced: %v", err)
					}
					wantState(t, tokens, ref, Completed)
					return
				}
				if err != nil || outcome.Grant.Attempt != 2 || outcome.Grant.Fence <= old.Fence {
					t.Fatalf("%+v, %v", outcome, err)
				}
				for name, err := range map[string]error{
					"complete": tokens.Complete(t.Context(), ref, old.Owner, answer, 0),
					"release":  tokens.Release(t.Context(), ref, old.Owner),
				} {
					if !errors.Is(err, ErrSuperseded) || !errors.Is(err, redisstore.ErrLost) {
						t.Errorf("%s by the superseded owner: %v", name, err)
					}
				}
				if _, err := tokens.Extend(t.Context(), ref, old.Owner, time.Minute, 0); !errors.Is(err, ErrSuperseded) {
					t.Errorf("extend by the superseded owner: %v", err)
				}
				wantState(t, tokens, ref, Claimed)
			})
		})
	}
}

func TestLapsedClaimHasExactlyOneHeirAmongManyRetries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		terms := Terms{Fingerprint: "f", Policy: Takeover, Lease: MinLease}
		ref := issue(t, tokens, "")
		old := claim(t, tokens, ref, terms)
		eventually(t, "the claim lapses", func() bool {
			status, err := tokens.Status(t.Context(), ref)
			return err == nil && status.State == InDoubt
		})
		terms.Lease = time.Minute
		var heirs atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				outcome, err := tokens.Claim(t.Context(), ref, terms)
				if err == nil && outcome.Granted && outcome.Grant.Fence > old.Fence {
					heirs.Add(1)
				} else if !errors.Is(err, ErrInProgress) {
					t.Errorf("%+v, %v", outcome, err)
				}
			})
		}
		wg.Wait()
		if heirs.Load() != 1 {
			t.Errorf("%d heirs", heirs.Load())
		}
	})
}

func TestExtendWithoutALeaseKeepsTheOneOfTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		ref := issue(t, tokens, "")
		grant := claim(t, tokens, ref, Terms{Fingerprint: "f", Lease: time.Hour})
		time.Sleep(time.Minute)
		if until, err := tokens.Extend(t.Context(), ref, grant.Owner, 0, 0); err != nil || until.Sub(grant.Until) != time.Minute {
			t.Errorf("extended from %v to %v, %v", grant.Until, until, err)
		}
		if err := tokens.Abandon(t.Context(), ref, grant.Owner, 0); err != nil {
			t.Fatal(err)
		}
		wantState(t, tokens, ref, InDoubt)
	})
}

func TestReleaseGivesTheTokenBack(t *testing.T) {
	tokens := embeddedTokens(t)
	ref := issue(t, tokens, "")
	first := claim(t, tokens, ref, Terms{Fingerprint: "f"})
	for range 2 {
		if err := tokens.Release(t.Context(), ref, first.Owner); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, tokens, ref, Issued)
	second := claim(t, tokens, ref, Terms{Fingerprint: "another request"})
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Errorf("%+v after %+v", second, first)
	}
	if err := tokens.Complete(t.Context(), ref, first.Owner, answer, 0); !errors.Is(err, ErrSuperseded) {
		t.Errorf("complete by an owner that released: %v", err)
	}
}

func TestTokensExpireAndAnswersStayForTheirRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		unused, err := tokens.Issue(t.Context(), "", "", time.Minute)
		if err != nil || time.Until(unused.ExpiresAt) > time.Minute {
			t.Fatalf("%+v, %v", unused, err)
		}
		used := issue(t, tokens, "")
		grant := claim(t, tokens, used, Terms{Fingerprint: "f", Retention: 48 * time.Hour})
		if err := tokens.Complete(t.Context(), used, grant.Owner, answer, 48*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := tokens.Status(t.Context(), IssuedToken("", unused.Value)); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("a token past its ttl: %v", err)
		}
		time.Sleep(47 * time.Hour)
		wantState(t, tokens, used, Completed)
		time.Sleep(2 * time.Hour)
		if _, err := tokens.Claim(t.Context(), used, Terms{Fingerprint: "f"}); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("a token past its retention: %v", err)
		}
	})
}
