package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// doubtful claims a new token, lets the lease lapse, and returns the operation's name as the next
// claim gets it.
func (s *service) doubtful(t testing.TB) (name, token string, grant client.Grant) {
	t.Helper()
	token, grant = s.lapsed(t, client.PolicyHold)
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	failure := wantError(t, err, client.ErrInDoubt)
	expect.Equal(t, "since when the operation is in doubt, as the error has it", failure.Since, grant.Until)
	if len(failure.Operation) != 32 {
		t.Fatalf("Claim of a token in doubt: got the operation %q, want a name of 32 characters", failure.Operation)
	}
	return failure.Operation, token, grant
}

// listed lists the operations in doubt with a prefix.
func (s *service) listed(t testing.TB, prefix string) (all []api.Operation) {
	t.Helper()
	for operation, err := range s.InDoubt(t.Context(), prefix) {
		must(t, "InDoubt with the prefix "+prefix, err)
		all = append(all, operation)
	}
	return all
}

// decided settles an operation twice, which is harmless, and checks that it is in doubt no longer.
func (s *service) decided(t *testing.T, name string, settlement client.Settlement, want api.State) {
	t.Helper()
	for range 2 {
		succeeds(t, "Settle as "+string(settlement.Decision), s.Settle(t.Context(), name, settlement))
	}
	shown, err := s.Operation(t.Context(), name)
	succeeds(t, "Operation that was settled", err)
	expect.Equal(t, "decision of the operation", shown.Decision, settlement.Decision)
	expect.Equal(t, "state of the operation settled as "+string(settlement.Decision), shown.State, want)
	expect.Equal(t, "operations in doubt of that name", len(s.listed(t, name)), 0)
}

func (s *service) doubtShown(t *testing.T) {
	name, _, grant := s.doubtful(t)
	want := api.Operation{Operation: name, State: api.StateInDoubt, Since: api.At(grant.Until), RanForMs: new(int64(100)), Policy: "hold", Attempts: 1, Fence: grant.Fence}
	notCompared := cmpopts.IgnoreFields(api.Operation{}, "RequestID", "ExpiresAt", "Began", "LeaseUntil")
	listed := s.listed(t, name)
	expect.MustEqual(t, "operations in doubt of that name", listed, []api.Operation{want}, notCompared)
	expect.Equal(t, "the operation has a request id", listed[0].RequestID != "", true)
	after(t, "when the record goes", listed[0].ExpiresAt.Time, grant.Until)
	shown, err := s.Operation(t.Context(), name)
	succeeds(t, "Operation", err)
	expect.Equal(t, "Operation", shown, want, notCompared)
	expect.Equal(t, "request id of Operation", shown.RequestID, listed[0].RequestID)
}

func (s *service) settledAsHappened(t *testing.T) {
	name, token, grant := s.doubtful(t)
	s.decided(t, name, client.Settlement{Decision: api.DecisionHappened, Answer: paid, Reason: "the ledger has it"}, api.StateCompleted)
	outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	succeeds(t, "Claim of what was settled as completed", err)
	expect.Equal(t, "Claim of what was settled as completed", outcome, client.Outcome{
		Answer: client.Answer{Status: 201, Header: map[string]string{"Location": "/bills/1"}, Body: paid.Body},
	})
	wantError(t, s.Settle(t.Context(), name, client.Settlement{Decision: api.DecisionRefused}), client.ErrNotInDoubt)
	wantError(t, s.Complete(t.Context(), token, grant.Lease, client.Answer{Status: 500}), client.ErrSuperseded)
}

func (s *service) settledAsNotBegun(t *testing.T) {
	name, token, first := s.doubtful(t)
	s.decided(t, name, client.Settlement{Decision: api.DecisionNotBegun}, api.StateIssued)
	wantError(t, s.Complete(t.Context(), token, first.Lease, paid), client.ErrSuperseded)
	second := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "another", Lease: time.Hour})
	later(t, second.Fence, first.Fence)
	expect.Equal(t, "the attempt after the settlement", second.Attempt, 2)
	for _, decision := range []api.Decision{api.DecisionHappened, api.DecisionNotBegun, api.DecisionRefused} {
		failure := wantError(t, s.Settle(t.Context(), name, client.Settlement{Decision: decision}), client.ErrAttemptRunning, "decision", decision)
		between(t, "the wait of the error while an attempt may run", failure.Wait, time.Second, time.Hour)
		expect.Equal(t, "whether asking again may help", failure.Retryable, true)
	}
	succeeds(t, "Complete by the attempt that was not settled", s.Complete(t.Context(), token, second.Lease, paid))
}

func (s *service) settledAsRefused(t *testing.T) {
	name, token, _ := s.doubtful(t)
	s.decided(t, name, client.Settlement{Decision: api.DecisionRefused}, api.StateRefused)
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	failure := wantError(t, err, client.ErrInDoubt)
	expect.Contains(t, "detail of the error of what was closed", failure.Detail, "closed it")
	s.decided(t, name, client.Settlement{Decision: api.DecisionNotBegun}, api.StateIssued)
	claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f", Lease: time.Hour})
}

func TestOperationsInDoubtAreListedPageByPageTheOldestFirst(t *testing.T) {
	s := embedded(t)
	const all = 101 // a page has 100
	for range all {
		claim(t, s.Client, issue(t, s.Client), client.ClaimOptions{Fingerprint: "f", Lease: 100 * time.Millisecond})
	}
	expect.Eventually(t, "all leases lapse", func() bool { return len(s.listed(t, "")) == all })
	before := s.proxy.count("issue") // GET /token has the path of an issue
	listed := s.listed(t, "")
	expect.Equal(t, "requests for 101 operations", s.proxy.count("issue")-before, 2)
	names := map[string]bool{}
	for i, operation := range listed {
		names[operation.Operation] = true
		if i > 0 && operation.Since.Before(listed[i-1].Since.Time) {
			t.Errorf("InDoubt: operation %d is in doubt since %v, before %v of the one listed first", i, operation.Since, listed[i-1].Since)
		}
	}
	expect.Equal(t, "different operations listed", len(names), all)
	for range s.InDoubt(t.Context(), "") {
		break
	}
	expect.Equal(t, "requests for the first of them", s.proxy.count("issue")-before, 3)
}

func TestSettlementWhoseReplyIsLostCanBeAskedForAgain(t *testing.T) {
	s := embedded(t)
	name, token, _ := s.doubtful(t)
	settlement := client.Settlement{Decision: api.DecisionHappened, Answer: paid}
	s.proxy.disturb(only("settle", 1, loseReply))
	wantError(t, s.Settle(t.Context(), name, settlement), client.ErrUnknownOutcome)
	s.decided(t, name, settlement, api.StateCompleted)
	expect.Equal(t, "state of the token", state(t, s.Client, token), api.StateCompleted)
}

func TestInvalidOperationsAndSettlementsAreRefused(t *testing.T) {
	s := embedded(t)
	name, _, _ := s.doubtful(t)
	settle := func(name string, settlement client.Settlement) error { return s.Settle(t.Context(), name, settlement) }
	for _, wrong := range []string{"", "short", name + "x", "../token", name[:31] + "/"} {
		_, err := s.Operation(t.Context(), wrong)
		wantError(t, err, client.ErrInvalid, "name", wrong)
		wantError(t, settle(wrong, client.Settlement{Decision: api.DecisionRefused}), client.ErrInvalid, "name", wrong)
	}
	expect.Equal(t, "requests for names that are none", s.proxy.count("settle"), 0)
	unknown := strings.Repeat("A", 32)
	_, err := s.Operation(t.Context(), unknown)
	wantError(t, err, client.ErrUnknownOperation)
	wantError(t, settle(unknown, client.Settlement{Decision: api.DecisionRefused}), client.ErrUnknownOperation)
	for _, settlement := range []client.Settlement{
		{}, {Decision: "maybe"},
		{Decision: api.DecisionHappened, Answer: client.Answer{Status: 99}},
		{Decision: api.DecisionRefused, Reason: strings.Repeat("r", 501)},
	} {
		wantError(t, settle(name, settlement), client.ErrInvalid, "settlement", settlement)
	}
	for operation, err := range s.InDoubt(t.Context(), strings.Repeat("p", 201)) {
		wantError(t, err, client.ErrInvalid, "listed", operation)
	}
	expect.Equal(t, "operations in doubt after all that", len(s.listed(t, name)), 1)
	answers := answering(t, 200, `{"operation":"`+unknown+`","state":"in-doubt"}`)
	_, err = answers.Operation(t.Context(), name)
	wantError(t, err, client.ErrUnavailable, "an answer about another operation than", name)
}
