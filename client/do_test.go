package client_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var (
	errProvider = errors.New("the provider hung up")
	done        = client.Answer{Status: 201, Header: map[string]string{"Location": "/bills/1"}, Body: []byte("done")}
)

func working(context.Context, *client.Attempt) (client.Answer, error) { return done, nil }
func failing(context.Context, *client.Attempt) (client.Answer, error) {
	return client.Answer{}, errProvider
}

// mustNotRun is a function for a token that is not to be granted.
func mustNotRun(t testing.TB) func(context.Context, *client.Attempt) (client.Answer, error) {
	t.Helper()
	return func(_ context.Context, attempt *client.Attempt) (client.Answer, error) {
		t.Errorf("it ran: %+v", attempt)
		return client.Answer{}, nil
	}
}

func isDone(result client.Result, replayed bool) bool {
	return result.Replayed == replayed && result.Answer.Status == 201 && string(result.Answer.Body) == "done" && result.Answer.Header["Location"] == "/bills/1"
}

func TestDoRunsOnceAmongManyCallers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		token := issue(t, s.Client)
		var runs, replayed, busy atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				result, err := s.Do(t.Context(), token, client.Terms{}, func(ctx context.Context, attempt *client.Attempt) (client.Answer, error) {
					runs.Add(1)
					if attempt.Fence == 0 || attempt.Number != 1 {
						t.Errorf("attempt %+v", attempt)
					}
					return working(ctx, attempt)
				})
				switch {
				case errors.Is(err, client.ErrInProgress):
					busy.Add(1)
				case err != nil || !isDone(result, result.Replayed):
					t.Errorf("%+v, %v", result, err)
				case result.Replayed:
					replayed.Add(1)
				}
			})
		}
		all.Wait()
		if runs.Load() != 1 || replayed.Load()+busy.Load() != 49 {
			t.Errorf("%d runs, %d replayed, %d in progress", runs.Load(), replayed.Load(), busy.Load())
		}
		if result, err := s.Do(t.Context(), token, client.Terms{}, mustNotRun(t)); err != nil || !isDone(result, true) {
			t.Errorf("afterwards %+v, %v", result, err)
		}
		_, err := s.Do(t.Context(), token, client.Terms{Fingerprint: "another"}, mustNotRun(t))
		wantError(t, err, client.ErrMismatch)
		_, err = s.Do(t.Context(), "made-up", client.Terms{}, mustNotRun(t))
		wantError(t, err, client.ErrUnknownToken)
	})
}

func TestDoGivesBackWhatNeverBegan(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	for _, want := range []error{errProvider, nil} { // with an error and without
		result, err := s.Do(t.Context(), token, client.Terms{Fingerprint: "invalid"}, func(ctx context.Context, attempt *client.Attempt) (client.Answer, error) {
			attempt.NotBegun()
			return done, want
		})
		if !errors.Is(err, want) || want == nil && !isDone(result, false) || state(t, s.Client, token) != client.Issued {
			t.Errorf("%+v, %v, state %s", result, err, state(t, s.Client, token))
		}
	}
	if result, err := s.Do(t.Context(), token, client.Terms{Fingerprint: "valid"}, working); err != nil || !isDone(result, false) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestDoDoesNotBeginAfterALostClaim(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	s.line.disturb(only("claim", 1, loseReply))
	_, err := s.Do(t.Context(), token, client.Terms{}, mustNotRun(t))
	wantError(t, err, client.ErrUnknownOutcome)
	_, err = s.Do(t.Context(), token, client.Terms{}, mustNotRun(t))
	wantError(t, err, client.ErrInProgress)
	if n := s.line.count("release") + s.line.count("complete") + s.line.count("extend"); n != 0 {
		t.Errorf("%d requests for a claim that nobody can prove", n)
	}
}

func TestDoRecordsAnAnswerThatIsTooLargeWithoutItsBody(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	large := client.Answer{Status: 201, Body: make([]byte, 1<<20)}
	result, err := s.Do(t.Context(), token, client.Terms{}, func(context.Context, *client.Attempt) (client.Answer, error) { return large, nil })
	if err != nil || len(result.Answer.Body) != 1<<20 || result.Answer.NotKept {
		t.Errorf("%d bytes, %v", len(result.Answer.Body), err)
	}
	result, err = s.Do(t.Context(), token, client.Terms{}, mustNotRun(t))
	if err != nil || !result.Replayed || !result.Answer.NotKept || result.Answer.Status != 201 || len(result.Answer.Body) != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// The answer is the truth although it can not be recorded: the caller gets both.
func TestDoTellsThatAnAnswerIsNotRecorded(t *testing.T) {
	s := embedded(t)
	for name, row := range map[string]struct {
		fault  fault
		answer client.Answer
		want   error
	}{
		"the record is gone": {says(410, "application/problem+json", `{"code":"idempotency-token-unknown"}`), done, client.ErrUnknownToken},
		"an invalid answer":  {nil, client.Answer{Status: 99}, client.ErrInvalidRequest},
	} {
		if row.fault != nil {
			s.line.disturb(only("complete", 0, row.fault))
		}
		before := s.line.count("complete")
		result, err := s.Do(t.Context(), issue(t, s.Client), client.Terms{}, func(context.Context, *client.Attempt) (client.Answer, error) { return row.answer, nil })
		wantError(t, err, row.want)
		if !errors.Is(err, client.ErrNotRecorded) || result.Answer.Status != row.answer.Status || s.line.count("complete") != before+1 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		s.line.disturb(nil)
	}
}

func TestDoWithdrawsAnAnswerThatAnotherAttemptHasReplaced(t *testing.T) {
	s := embedded(t)
	s.line.disturb(only("complete", 0, says(409, "application/problem+json", `{"code":"idempotency-superseded"}`)))
	result, err := s.Do(t.Context(), issue(t, s.Client), client.Terms{}, working)
	wantError(t, err, client.ErrSuperseded)
	if errors.Is(err, client.ErrNotRecorded) || result.Answer.Status != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestTheLogHoldsNoSecret(t *testing.T) {
	var log strings.Builder
	s := embedded(t)
	c := connect(t, s.url, func(config *client.Config) { config.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	token := issue(t, c)
	s.line.disturb(only("release", 0, says(410, "application/problem+json", `{"code":"idempotency-token-unknown","detail":"it was `+token+`","see":"/token/`+token+`"}`)))
	_, err := c.Do(t.Context(), token, client.Terms{}, func(_ context.Context, attempt *client.Attempt) (client.Answer, error) {
		attempt.NotBegun()
		return done, nil
	})
	if err != nil || !strings.Contains(log.String(), "could not be given back") || strings.Contains(log.String(), token) {
		t.Errorf("%v: %s", err, &log)
	}
}
