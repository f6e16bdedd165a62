package client_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestTokenVerbsAgainstTheService(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		t.Run("issue, claim, extend, complete, replay", s.round)
		t.Run("a claim in progress is told with what is left of its lease", s.busy)
		t.Run("a claim given back can be taken again", s.givenBack)
		t.Run("only the owner may complete, extend or release", s.owner)
		t.Run("a silent attempt under hold stays in doubt until its owner comes back", s.doubt)
		t.Run("a silent attempt under takeover is superseded", s.takeover)
		t.Run("what the service never heard of is unknown", s.unknown)
		t.Run("of many claims at once one is granted", s.manyAtOnce)
	})
}

var paid = client.Answer{Status: 201, Header: map[string]string{"location": "/bills/1", "Set-Cookie": "session=secret"}, Body: []byte("\x00\xff\n")}

func (s *service) round(t *testing.T) {
	before := time.Now().Add(-time.Hour) // the store's clock is this machine's, more or less
	token, err := s.Issue(t.Context(), "billing", 10*time.Minute)
	if err != nil || token.Scope != "billing" || !token.ExpiresAt.After(before) {
		t.Fatalf("%+v, %v", token, err)
	}
	if status, err := s.Status(t.Context(), token.Value); err != nil || status.State != client.Issued || status.Scope != "billing" || status.Attempts != 0 || !status.LeaseUntil.IsZero() {
		t.Errorf("%+v, %v", status, err)
	}
	grant := claim(t, s.Client, token.Value, client.Terms{Fingerprint: "f"})
	status, err := s.Status(t.Context(), token.Value)
	if err != nil || status.State != client.Claimed || status.Fence != grant.Fence || status.Attempts != 1 || grant.Attempt != 1 || !status.LeaseUntil.Equal(grant.Until) {
		t.Errorf("%+v after %+v, %v", status, grant, err)
	}
	if left := grant.Until.Sub(status.ExpiresAt.Add(-24 * time.Hour)); left <= 0 || left > 31*time.Second {
		t.Errorf("a lease of %v, not of the default", left)
	}
	until, err := s.Extend(t.Context(), token.Value, grant.Lease, time.Hour)
	if err != nil || !until.After(grant.Until.Add(50*time.Minute)) {
		t.Errorf("extended from %v to %v, %v", grant.Until, until, err)
	}
	if back, err := s.Extend(t.Context(), token.Value, grant.Lease, 0); err != nil || !back.Before(until) {
		t.Errorf("extended by the lease of the claim to %v, %v", back, err)
	}
	for _, answer := range []client.Answer{paid, paid, {Status: 500}} { // a repeat is harmless, and the first answer stays
		if err := s.Complete(t.Context(), token.Value, grant.Lease, answer); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		outcome, err := s.Claim(t.Context(), token.Value, client.Terms{Fingerprint: "f"})
		answer := outcome.Answer
		if err != nil || outcome.Granted || answer.Status != 201 || string(answer.Body) != string(paid.Body) || len(answer.Header) != 1 || answer.Header["Location"] != "/bills/1" {
			t.Errorf("%+v, %v", outcome, err)
		}
	}
	if got := state(t, s.Client, token.Value); got != client.Completed {
		t.Errorf("state %s", got)
	}
	_, err = s.Claim(t.Context(), token.Value, client.Terms{Fingerprint: "g"})
	wantError(t, err, client.ErrMismatch)
	_, err = s.Extend(t.Context(), token.Value, grant.Lease, 0)
	wantError(t, err, client.ErrSuperseded)
	wantError(t, s.Release(t.Context(), token.Value, grant.Lease), client.ErrSuperseded)
}

func (s *service) busy(t *testing.T) {
	token := issue(t, s.Client)
	claim(t, s.Client, token, client.Terms{Fingerprint: "f", Lease: 20 * time.Second})
	_, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"})
	said := wantError(t, err, client.ErrInProgress)
	if said.RetryAfter < time.Second || said.RetryAfter > 20*time.Second || !said.Retryable || said.Status != 409 || said.See != "/token/"+token {
		t.Errorf("%+v", said)
	}
	_, err = s.Claim(t.Context(), token, client.Terms{Fingerprint: "g"})
	wantError(t, err, client.ErrMismatch)
}

func (s *service) givenBack(t *testing.T) {
	token := issue(t, s.Client)
	first := claim(t, s.Client, token, client.Terms{Fingerprint: "f"})
	for range 2 { // a repeat is harmless
		if err := s.Release(t.Context(), token, first.Lease); err != nil {
			t.Error(err)
		}
	}
	if got := state(t, s.Client, token); got != client.Issued {
		t.Errorf("state %s", got)
	}
	wantError(t, s.Complete(t.Context(), token, first.Lease, client.Answer{}), client.ErrSuperseded)
	second := claim(t, s.Client, token, client.Terms{Fingerprint: "another"})
	if second.Fence <= first.Fence || second.Attempt != 2 || second.Lease == first.Lease {
		t.Errorf("%+v after %+v", second, first)
	}
}

func (s *service) owner(t *testing.T) {
	token, other := issue(t, s.Client), issue(t, s.Client)
	mine := claim(t, s.Client, token, client.Terms{Fingerprint: "f"}).Lease
	theirs := claim(t, s.Client, other, client.Terms{Fingerprint: "f"}).Lease
	for _, lease := range []string{theirs, "x", mine + "x"} {
		wantError(t, s.Complete(t.Context(), token, lease, client.Answer{}), client.ErrSuperseded)
		wantError(t, s.Release(t.Context(), token, lease), client.ErrSuperseded)
		_, err := s.Extend(t.Context(), token, lease, 0)
		wantError(t, err, client.ErrSuperseded)
	}
	if err := s.Complete(t.Context(), token, mine, client.Answer{}); err != nil {
		t.Error(err)
	}
	outcome, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"})
	if err != nil || outcome.Answer.Status != 200 || len(outcome.Answer.Body) != 0 {
		t.Errorf("an answer without a status: %+v, %v", outcome, err)
	}
}

// lapsed claims a token and lets its lease lapse.
func (s *service) lapsed(t testing.TB, policy client.Policy) (token string, grant client.Grant) {
	t.Helper()
	token = issue(t, s.Client)
	grant = claim(t, s.Client, token, client.Terms{Fingerprint: "f", Policy: policy, Lease: 100 * time.Millisecond})
	eventually(t, "the lease lapses", func() bool { return state(t, s.Client, token) == client.InDoubt })
	return token, grant
}

func (s *service) doubt(t *testing.T) {
	token, grant := s.lapsed(t, client.Hold)
	for _, policy := range []client.Policy{client.Hold, client.Takeover} { // the policy of the claim that was made counts
		_, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f", Policy: policy})
		if said := wantError(t, err, client.ErrInDoubt); said.RetryAfter != 0 || said.Retryable {
			t.Errorf("%+v", said)
		}
	}
	if err := s.Complete(t.Context(), token, grant.Lease, paid); err != nil {
		t.Error(err)
	}
	if outcome, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"}); err != nil || outcome.Answer.Status != 201 {
		t.Errorf("%+v, %v", outcome, err)
	}
}

func (s *service) takeover(t *testing.T) {
	token, first := s.lapsed(t, client.Takeover)
	_, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"})
	wantError(t, err, client.ErrInDoubt)
	second := claim(t, s.Client, token, client.Terms{Fingerprint: "f", Policy: client.Takeover})
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Errorf("%+v after %+v", second, first)
	}
	wantError(t, s.Complete(t.Context(), token, first.Lease, paid), client.ErrSuperseded)
	wantError(t, s.Complete(t.Context(), token, first.Lease, paid), client.ErrLost)
	if err := s.Complete(t.Context(), token, second.Lease, client.Answer{Status: 202}); err != nil {
		t.Error(err)
	}
}

func (s *service) unknown(t *testing.T) {
	_, err := s.Claim(t.Context(), "made-up", client.Terms{Fingerprint: "f"})
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
			outcome, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"})
			switch {
			case errors.Is(err, client.ErrInProgress):
				busy.Add(1)
			case err == nil && outcome.Granted:
				granted.Add(1)
			default:
				t.Errorf("%+v, %v", outcome, err)
			}
		})
	}
	all.Wait()
	if granted.Load() != 1 || busy.Load() != 49 {
		t.Errorf("%d granted, %d in progress", granted.Load(), busy.Load())
	}
}

// What a request may not hold is refused: by the service, or here, where it would have been another request.
func TestInvalidRequestsAreRefused(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	grant := claim(t, s.Client, token, client.Terms{Fingerprint: "f"})
	for name, ask := range map[string]func() error{
		"ttl":            func() error { _, err := s.Issue(t.Context(), "", time.Nanosecond); return err },
		"negative ttl":   func() error { _, err := s.Issue(t.Context(), "", -time.Hour); return err },
		"scope":          func() error { _, err := s.Issue(t.Context(), "a b", 0); return err },
		"no fingerprint": func() error { _, err := s.Claim(t.Context(), token, client.Terms{}); return err },
		"policy": func() error {
			_, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f", Policy: "never"})
			return err
		},
		"lease": func() error {
			_, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f", Lease: time.Nanosecond})
			return err
		},
		"extension":    func() error { _, err := s.Extend(t.Context(), token, grant.Lease, 25*time.Hour); return err },
		"status":       func() error { return s.Complete(t.Context(), token, grant.Lease, client.Answer{Status: 99}) },
		"no token":     func() error { _, err := s.Status(t.Context(), ""); return err },
		"other path":   func() error { _, err := s.Status(t.Context(), token+"/claim"); return err },
		"parent":       func() error { _, err := s.Status(t.Context(), ".."); return err },
		"query":        func() error { _, err := s.Status(t.Context(), token+"?x=1"); return err },
		"no lease":     func() error { return s.Release(t.Context(), token, "") },
		"two headers":  func() error { return s.Release(t.Context(), token, "a\r\nX-Other: b") },
		"Do's lease":   func() error { _, err := s.Do(t.Context(), token, client.Terms{Lease: -time.Hour}, nil); return err },
		"Do, no token": func() error { _, err := s.Do(t.Context(), "", client.Terms{}, nil); return err },
	} {
		before := s.line.count("claim")
		t.Run(name, func(t *testing.T) { wantError(t, ask(), client.ErrInvalidRequest) })
		if strings.HasPrefix(name, "Do") && s.line.count("claim") != before {
			t.Errorf("%s: it was sent", name)
		}
	}
}

func TestAnswerThatIsTooLargeIsRefusedAndCanBeLeftOut(t *testing.T) {
	s := embedded(t)
	for _, size := range []int{800 << 10, 8 << 20} { // beyond and far beyond what the service reads
		token := issue(t, s.Client)
		grant := claim(t, s.Client, token, client.Terms{Fingerprint: "f"})
		wantError(t, s.Complete(t.Context(), token, grant.Lease, client.Answer{Body: make([]byte, size)}), client.ErrTooLarge)
		if got := state(t, s.Client, token); got != client.Claimed {
			t.Errorf("state %s", got)
		}
		if err := s.Complete(t.Context(), token, grant.Lease, client.Answer{Status: 201, NotKept: true}); err != nil {
			t.Error(err)
		}
		outcome, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"})
		if err != nil || outcome.Answer.Status != 201 || !outcome.Answer.NotKept {
			t.Errorf("%+v, %v", outcome, err)
		}
	}
	token := issue(t, s.Client)
	grant := claim(t, s.Client, token, client.Terms{Fingerprint: "f"})
	if err := s.Complete(t.Context(), token, grant.Lease, client.Answer{Body: make([]byte, 700<<10)}); err != nil {
		t.Fatalf("a large answer that the service takes: %v", err)
	}
	if outcome, err := s.Claim(t.Context(), token, client.Terms{Fingerprint: "f"}); err != nil || len(outcome.Answer.Body) != 700<<10 {
		t.Errorf("%d bytes, %v", len(outcome.Answer.Body), err)
	}
}

func TestFingerprintTellsPartsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"a,b"}, {"1:a"}, {"a,1:b"}, {"b", "a"}} {
		fingerprint := client.Fingerprint(parts...)
		if seen[fingerprint] || len(fingerprint) != 43 || fingerprint != client.Fingerprint(parts...) {
			t.Errorf("%q: %s", parts, fingerprint)
		}
		seen[fingerprint] = true
	}
}
