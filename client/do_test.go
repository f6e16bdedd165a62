package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var (
	errProvider = errors.New("the provider hung up")
	done        = client.Answer{Status: 201, Header: map[string]string{"Location": "/bills/1"}, Body: []byte("done")}
)

func working(context.Context, *client.Attempt) ([]byte, error) { return done.Body, nil }
func failing(context.Context, *client.Attempt) ([]byte, error) {
	return nil, errProvider
}

// mustNotRun is a function for a token that is not to be granted.
func mustNotRun(t testing.TB) func(context.Context, *client.Attempt) ([]byte, error) {
	t.Helper()
	return func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
		t.Errorf("the function ran as attempt %d with fence %d, want no run", attempt.Number, attempt.Fence)
		return nil, nil
	}
}

// isDone fails the test unless Do came to what working answers.
func isDone(t testing.TB, asked string, result client.Result, err error, replayed bool) {
	t.Helper()
	succeeds(t, asked, err)
	expect.Equal(t, asked, result, client.Result{Value: done.Body, Replayed: replayed})
}

func (s *service) doneOnce(t *testing.T) {
	token := issue(t, s.Client)
	var runs, replayed, busy atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			result, err := s.Do(t.Context(), token, client.ClaimOptions{}, func(ctx context.Context, attempt *client.Attempt) ([]byte, error) {
				runs.Add(1)
				if attempt.Fence == 0 || attempt.Number != 1 {
					t.Errorf("it ran as attempt %d with fence %d, want attempt 1 with a fence", attempt.Number, attempt.Fence)
				}
				return working(ctx, attempt)
			})
			if errors.Is(err, client.ErrInProgress) {
				busy.Add(1)
				return
			}
			isDone(t, "Do, by one of 50", result, err, result.Replayed)
			if result.Replayed {
				replayed.Add(1)
			}
		})
	}
	all.Wait()
	expect.Equal(t, "runs of 50 calls of Do", runs.Load(), 1)
	expect.Equal(t, "calls of Do, of 50, that heard `in progress` or the answer of another", replayed.Load()+busy.Load(), 49)
	result, err := s.Do(t.Context(), token, client.ClaimOptions{}, mustNotRun(t))
	isDone(t, "Do afterwards", result, err, true)
	_, err = s.Do(t.Context(), token, client.ClaimOptions{Fingerprint: "another"}, mustNotRun(t))
	wantError(t, err, client.ErrMismatch)
	_, err = s.Do(t.Context(), "made-up", client.ClaimOptions{}, mustNotRun(t))
	wantError(t, err, client.ErrUnknownToken)
}

// The work charges, and then a lock within it is refused. Do's error must not look as if nothing
// had happened.
func TestErrorOfDosFunctionIsOfNoClass(t *testing.T) {
	s := embedded(t)
	_, refusal := s.Do(t.Context(), "made-up", client.ClaimOptions{}, mustNotRun(t))
	for _, inner := range []error{client.ErrRefused, client.ErrLost, client.ErrUnknownOutcome, client.ErrInProgress, refusal} {
		_, err := s.Do(t.Context(), issue(t, s.Client), client.ClaimOptions{}, func(context.Context, *client.Attempt) ([]byte, error) {
			return nil, inner
		})
		expect.Error(t, "the function's error", ofWork(t, err), inner)
		expect.Equal(t, "classes of Do's error for "+inner.Error(), classesOf(err), 0)
		if failure, is := errors.AsType[*client.Error](err); is {
			t.Errorf("Do, whose function returned %v: its error is the call's, %v", inner, failure)
		}
	}
}

func TestDoGivesBackWhatNeverBegan(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	for _, want := range []error{errProvider, nil} { // with an error and without
		result, err := s.Do(t.Context(), token, client.ClaimOptions{Fingerprint: "invalid"}, func(ctx context.Context, attempt *client.Attempt) ([]byte, error) {
			attempt.Release()
			return done.Body, want
		})
		if want != nil {
			expect.Error(t, "the error of what never began", ofWork(t, err), want)
		} else {
			isDone(t, "Do of what never began, without an error", result, err, false)
		}
		expect.Equal(t, "the token's state after what never began", state(t, s.Client, token), api.StateIssued)
	}
	result, err := s.Do(t.Context(), token, client.ClaimOptions{Fingerprint: "valid"}, working)
	isDone(t, "Do of another request with the same token", result, err, false)
}

func TestDoBeginsOnceAfterALostClaim(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	s.proxy.disturb(only("claim", 2, loseReply))
	result, err := s.Do(t.Context(), token, client.ClaimOptions{}, working)
	isDone(t, "Do that loses two replies to its claim", result, err, false)
	expect.Equal(t, "claims sent", s.proxy.count("claim"), 3)
}

func TestDoGivesBackAClaimThatIsNeverAnswered(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	s.proxy.disturb(only("claim", 0, loseReply))
	_, err := s.Do(t.Context(), token, client.ClaimOptions{Lease: time.Hour}, mustNotRun(t))
	wantError(t, err, client.ErrUnknownOutcome)
	expect.Equal(t, "the token's state", state(t, s.Client, token), api.StateIssued)
	s.proxy.disturb(nil)
	result, err := s.Do(t.Context(), token, client.ClaimOptions{}, working)
	isDone(t, "Do afterwards", result, err, false)
}

func TestDoRecordsAValueThatIsTooLargeAsNotKept(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	large := make([]byte, 1<<20) // in JSON it is more than the service takes
	result, err := s.Do(t.Context(), token, client.ClaimOptions{}, func(context.Context, *client.Attempt) ([]byte, error) { return large, nil })
	succeeds(t, "Do with a value of 1 MiB", err)
	expect.Equal(t, "bytes that Do returned of a value of 1 MiB", len(result.Value), 1<<20)
	expect.Equal(t, "NotKept of the first", result.NotKept, false)
	result, err = s.Do(t.Context(), token, client.ClaimOptions{}, mustNotRun(t))
	succeeds(t, "Do again", err)
	expect.Equal(t, "Do again", result, client.Result{NotKept: true, Replayed: true}, cmpopts.EquateEmpty())
}

// The value is the truth although it cannot be recorded: the caller gets both.
func TestDoReportsThatAnAnswerIsNotRecorded(t *testing.T) {
	s := embedded(t)
	s.proxy.disturb(only("complete", 0, says(410, "application/problem+json", `{"code":"idempotency-token-unknown"}`)))
	result, err := s.Do(t.Context(), issue(t, s.Client), client.ClaimOptions{}, working)
	expect.Error(t, "Do", err, client.ErrNotRecorded)
	expect.Error(t, "Do", err, client.ErrUnknownOutcome)
	expect.Equal(t, "classes of Do's error", classesOf(err), 1)
	isDone(t, "Do", result, nil, false)
	expect.Equal(t, "requests to record the value", s.proxy.count("complete"), 1)
}

func TestDoWithdrawsAnAnswerThatAnotherAttemptHasReplaced(t *testing.T) {
	s := embedded(t)
	s.proxy.disturb(only("complete", 0, says(409, "application/problem+json", `{"code":"idempotency-superseded"}`)))
	result, err := s.Do(t.Context(), issue(t, s.Client), client.ClaimOptions{}, working)
	wantError(t, err, client.ErrSuperseded)
	if errors.Is(err, client.ErrNotRecorded) {
		t.Errorf("Do, superseded: got error %v, want none that is %v", err, client.ErrNotRecorded)
	}
	expect.Equal(t, "Do, superseded", result, client.Result{})
}

func TestTheLogHoldsNoSecret(t *testing.T) {
	var log strings.Builder
	s := embedded(t)
	c := connect(t, s.url, func(config *client.Config) { config.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	token := issue(t, c)
	s.proxy.disturb(only("release", 0, says(410, "application/problem+json", `{"code":"idempotency-token-unknown","detail":"it was `+token+`","see":"/token/`+token+`"}`)))
	_, err := c.Do(t.Context(), token, client.ClaimOptions{}, func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
		attempt.Release()
		return done.Body, nil
	})
	succeeds(t, "Do of what never began, and whose claim is gone", err)
	expect.Contains(t, "the log", log.String(), "could not be given back")
	if strings.Contains(log.String(), token) {
		t.Errorf("the token %s stands in the log: %s", token, &log)
	}
}

// A firewall that blocks the service's answers, as with 403, has passed the requests on.
func TestBlockedAnswerIsNoRefusal(t *testing.T) {
	s := embedded(t)
	block := func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		service.ServeHTTP(httptest.NewRecorder(), r)
		return says(http.StatusForbidden, "text/html", "<html>")(w, r, service)
	}
	for _, verb := range []string{"claim", "complete"} {
		token := issue(t, s.Client)
		s.proxy.disturb(only(verb, 1, block))
		result, err := s.Do(t.Context(), token, client.ClaimOptions{}, working)
		isDone(t, "Do, whose answer to the first "+verb+" is blocked", result, err, false)
	}
	s.proxy.disturb(only("status", 1, block)) // of two parts, as a token's status: /incr/orders
	_, err := s.Incr(t.Context(), "orders")
	wantError(t, err, client.ErrUnknownOutcome)
	value, err := s.Counter(t.Context(), "orders")
	succeeds(t, "Counter", err)
	expect.Equal(t, "the counter after an addition whose answer was blocked", value, 1)
}
