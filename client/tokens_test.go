package client_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var paid = client.Answer{Status: 201, Header: map[string]string{"location": "/bills/1", "Set-Cookie": "session=secret"}, Body: []byte("\x00\xff\n")}

func (s *service) round(t *testing.T) {
	before := time.Now().Add(-time.Hour) // the store's clock is this machine's, more or less
	token, err := s.Issue(t.Context(), "billing", 10*time.Minute)
	must(t, "Issue", err)
	expect.Equal(t, "the scope of the token", token.Scope, "billing")
	after(t, "the end of the token", token.ExpiresAt, before)
	status, err := s.Status(t.Context(), token.Value)
	succeeds(t, "Status of what was issued", err)
	expect.Equal(t, "Status of what was issued", status, api.TokenStatus{State: api.StateIssued, Scope: "billing"}, cmpopts.IgnoreFields(api.TokenStatus{}, "ExpiresAt"))
	grant := claim(t, s.Client, token.Value, client.ClaimOptions{Fingerprint: "f"})
	expect.Equal(t, "the attempt of the first claim", grant.Attempt, 1)
	status, err = s.Status(t.Context(), token.Value)
	succeeds(t, "Status of what was claimed", err)
	expect.Equal(t, "Status of what was claimed", status, api.TokenStatus{
		State: api.StateClaimed, Scope: "billing", Fence: grant.Fence, Attempts: 1, LeaseUntil: api.At(grant.Until),
	}, cmpopts.IgnoreFields(api.TokenStatus{}, "ExpiresAt"))
	between(t, "the lease by default", grant.Until.Sub(status.ExpiresAt.Add(-idempotency.MinKeepOpen)), 1, 31*time.Second)
	until, err := s.Extend(t.Context(), token.Value, grant.Lease, time.Hour)
	succeeds(t, "Extend by an hour", err)
	after(t, "the end of a lease that was extended by an hour", until, grant.Until.Add(50*time.Minute))
	back, err := s.Extend(t.Context(), token.Value, grant.Lease, 0)
	succeeds(t, "Extend by the lease of the claim", err)
	after(t, "the end that an hour had made later than the lease of the claim", until, back)
	// a repeat is harmless, and the first answer stays
	for _, answer := range []client.Answer{paid, paid, {Status: 500}} {
		succeeds(t, "Complete", s.Complete(t.Context(), token.Value, grant.Lease, answer))
	}
	for range 2 {
		outcome, err := s.Claim(t.Context(), token.Value, client.ClaimOptions{Fingerprint: "f"})
		succeeds(t, "Claim of what was completed", err)
		expect.Equal(t, "Claim of what was completed", outcome, client.Outcome{
			// no cookie
			Answer: client.Answer{Status: 201, Header: map[string]string{"Location": "/bills/1"}, Body: paid.Body},
		})
	}
	expect.Equal(t, "the token's state", state(t, s.Client, token.Value), api.StateCompleted)
	_, err = s.Claim(t.Context(), token.Value, client.ClaimOptions{Fingerprint: "g"})
	wantError(t, err, client.ErrMismatch)
	_, err = s.Extend(t.Context(), token.Value, grant.Lease, 0)
	wantError(t, err, client.ErrSuperseded)
	wantError(t, s.Release(t.Context(), token.Value, grant.Lease), client.ErrSuperseded)
}

func (s *service) busy(t *testing.T) {
	token := issue(t, s.Client)
	claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	failure := wantError(t, err, client.ErrInProgress)
	between(t, "the wait of the error", failure.Wait, time.Second, time.Hour)
	expect.Equal(t, "whether asking again may help", failure.Retryable, true)
	expect.Equal(t, "the status", failure.Status, 409)
	expect.Equal(t, "where to read on", failure.See, "/token/…")
	_, err = s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "g"})
	wantError(t, err, client.ErrMismatch)
}

func (s *service) givenBack(t *testing.T) {
	token := issue(t, s.Client)
	first := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"})
	for range 2 { // a repeat is harmless
		succeeds(t, "Release", s.Release(t.Context(), token, first.Lease))
	}
	expect.Equal(t, "the state of a token that was given back", state(t, s.Client, token), api.StateIssued)
	wantError(t, s.Complete(t.Context(), token, first.Lease, client.Answer{}), client.ErrSuperseded)
	second := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "another"})
	later(t, second.Fence, first.Fence)
	expect.Equal(t, "the attempt after a release", second.Attempt, 2)
	if second.Lease == first.Lease {
		t.Errorf("the second claim has the lease %q of the first, want another", second.Lease)
	}
}

func (s *service) owner(t *testing.T) {
	token, other := issue(t, s.Client), issue(t, s.Client)
	mine := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"}).Lease
	theirs := claim(t, s.Client, other, client.ClaimOptions{Fingerprint: "f"}).Lease
	for _, lease := range []string{theirs, "x", mine + "x"} {
		wantError(t, s.Complete(t.Context(), token, lease, client.Answer{}), client.ErrSuperseded, "lease", lease)
		wantError(t, s.Release(t.Context(), token, lease), client.ErrSuperseded, "lease", lease)
		_, err := s.Extend(t.Context(), token, lease, 0)
		wantError(t, err, client.ErrSuperseded, "lease", lease)
	}
	succeeds(t, "Complete by the owner", s.Complete(t.Context(), token, mine, client.Answer{}))
	outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	succeeds(t, "Claim of what was completed without a status", err)
	expect.Equal(t, "Claim of what was completed without a status", outcome.Answer.Status, 200)
	expect.Equal(t, "Claim of what was completed without a body", string(outcome.Answer.Body), "")
}

// lapsed claims a token and lets its lease lapse.
func (s *service) lapsed(t testing.TB, policy client.Policy) (token string, grant client.Grant) {
	t.Helper()
	token = issue(t, s.Client)
	grant = claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f", Policy: policy, Lease: 100 * time.Millisecond})
	expect.Eventually(t, "the lease lapses", func() bool { return state(t, s.Client, token) == api.StateInDoubt })
	return token, grant
}

func (s *service) doubt(t *testing.T) {
	token, grant := s.lapsed(t, client.PolicyHold)
	// the policy of the claim that was made counts
	for _, policy := range []client.Policy{client.PolicyHold, client.PolicyTakeover} {
		_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f", Policy: policy})
		failure := wantError(t, err, client.ErrInDoubt, "policy", policy)
		expect.Equal(t, "the wait of the error for a token in doubt", failure.Wait, 0)
		expect.Equal(t, "whether asking again may help", failure.Retryable, false)
	}
	succeeds(t, "Complete by the late owner", s.Complete(t.Context(), token, grant.Lease, paid))
	outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	succeeds(t, "Claim of what was completed late", err)
	expect.Equal(t, "Claim of what was completed late", outcome.Answer.Status, 201)
}

func (s *service) takeover(t *testing.T) {
	token, first := s.lapsed(t, client.PolicyTakeover)
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	wantError(t, err, client.ErrInDoubt)
	second := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f", Policy: client.PolicyTakeover})
	later(t, second.Fence, first.Fence)
	expect.Equal(t, "the attempt that takes over", second.Attempt, 2)
	wantError(t, s.Complete(t.Context(), token, first.Lease, paid), client.ErrSuperseded)
	wantError(t, s.Complete(t.Context(), token, first.Lease, paid), client.ErrLost)
	succeeds(t, "Complete by the second", s.Complete(t.Context(), token, second.Lease, client.Answer{Status: 202}))
}

func (s *service) unknown(t *testing.T) {
	_, err := s.Claim(t.Context(), "made-up", client.ClaimOptions{Fingerprint: "f"})
	wantError(t, err, client.ErrUnknownToken)
	_, err = s.Status(t.Context(), "made-up")
	wantError(t, err, client.ErrUnknownToken)
	_, err = s.Extend(t.Context(), "made-up", "lease", 0)
	wantError(t, err, client.ErrUnknownToken)
	wantError(t, s.Complete(t.Context(), "made-up", "lease", client.Answer{}), client.ErrUnknownToken)
	wantError(t, s.Release(t.Context(), "made-up", "lease"), client.ErrUnknownToken)
}

func (s *service) manyAtOnce(t *testing.T) {
	token := issue(t, s.Client)
	var granted, busy atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
			switch {
			case errors.Is(err, client.ErrInProgress):
				busy.Add(1)
			case err == nil && outcome.Granted:
				granted.Add(1)
			default:
				t.Errorf("Claim by one of 50: got %+v, %v, want it granted or in progress", outcome, err)
			}
		})
	}
	all.Wait()
	expect.Equal(t, "claims granted, of 50", granted.Load(), 1)
	expect.Equal(t, "claims that got `in progress`, of 50", busy.Load(), 49)
}

// What a request may not hold is refused: by the service, or here, where it would have been another
// request.
func TestInvalidRequestsAreRefused(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	grant := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"})
	for name, ask := range map[string]func() error{
		"ttl":            func() error { _, err := s.Issue(t.Context(), "", time.Nanosecond); return err },
		"negative ttl":   func() error { _, err := s.Issue(t.Context(), "", -time.Hour); return err },
		"scope":          func() error { _, err := s.Issue(t.Context(), "a b", 0); return err },
		"no fingerprint": func() error { _, err := s.Claim(t.Context(), token, client.ClaimOptions{}); return err },
		"policy": func() error {
			_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f", Policy: "never"})
			return err
		},
		"lease": func() error {
			_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f", Lease: time.Nanosecond})
			return err
		},
		"extension":   func() error { _, err := s.Extend(t.Context(), token, grant.Lease, 25*time.Hour); return err },
		"status":      func() error { return s.Complete(t.Context(), token, grant.Lease, client.Answer{Status: 99}) },
		"no token":    func() error { _, err := s.Status(t.Context(), ""); return err },
		"other path":  func() error { _, err := s.Status(t.Context(), token+"/claim"); return err },
		"parent":      func() error { _, err := s.Status(t.Context(), ".."); return err },
		"query":       func() error { _, err := s.Status(t.Context(), token+"?x=1"); return err },
		"no lease":    func() error { return s.Release(t.Context(), token, "") },
		"two headers": func() error { return s.Release(t.Context(), token, "a\r\nX-Other: b") },
		"Do's lease": func() error {
			_, err := s.Do(t.Context(), token, client.ClaimOptions{Lease: -time.Hour}, nil)
			return err
		},
		"Do, no token": func() error { _, err := s.Do(t.Context(), "", client.ClaimOptions{}, nil); return err },
	} {
		before := s.proxy.count("claim")
		t.Run(name, func(t *testing.T) { wantError(t, ask(), client.ErrInvalid) })
		if strings.HasPrefix(name, "Do") {
			expect.Equal(t, "claims sent for "+name, s.proxy.count("claim")-before, 0)
		}
	}
}

func TestAnswerThatIsTooLargeIsRefusedAndCanBeLeftOut(t *testing.T) {
	s := embedded(t)
	for _, size := range []int{800 << 10, 8 << 20} { // beyond and far beyond what the service reads
		token := issue(t, s.Client)
		grant := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"})
		wantError(t, s.Complete(t.Context(), token, grant.Lease, client.Answer{Body: make([]byte, size)}), client.ErrTooLarge, "size", size)
		expect.Equal(t, "the token's state after an answer that is too large", state(t, s.Client, token), api.StateClaimed)
		succeeds(t, "Complete without the body", s.Complete(t.Context(), token, grant.Lease, client.Answer{Status: 201, NotKept: true}))
		outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
		succeeds(t, "Claim of what was completed without the body", err)
		expect.Equal(t, "Claim of what was completed without the body", outcome.Answer.Status, 201)
		expect.Equal(t, "NotKept of what was completed without the body", outcome.Answer.NotKept, true)
	}
	token := issue(t, s.Client)
	grant := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"})
	must(t, "Complete with as large an answer as the service takes", s.Complete(t.Context(), token, grant.Lease, client.Answer{Body: make([]byte, 700<<10)}))
	outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	succeeds(t, "Claim of what was completed with a large answer", err)
	expect.Equal(t, "bytes of the answer", len(outcome.Answer.Body), 700<<10)
}

func TestFingerprintSeparatesParts(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"a,b"}, {"1:a"}, {"a,1:b"}, {"b", "a"}} {
		fingerprint := client.Fingerprint(parts...)
		if seen[fingerprint] || len(fingerprint) != 43 || fingerprint != client.Fingerprint(parts...) {
			t.Errorf("Fingerprint(%q): got %q, want 43 characters that no other parts have, and the same each time", parts, fingerprint)
		}
		seen[fingerprint] = true
	}
}
