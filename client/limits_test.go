package client_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var hourly = client.LimitRate{N: 6, Per: time.Hour, Burst: 4}

func (s *service) takes(t testing.TB, rate client.LimitRate, cost, remaining int) {
	t.Helper()
	state, err := s.TakeLimit(t.Context(), "sms", rate, cost)
	must(t, "TakeLimit", err)
	expect.Equal(t, "remaining", state.Remaining, remaining)
}

func TestLimitsOfTheClient(t *testing.T) {
	s := embedded(t)
	s.takes(t, hourly, 0, 4)
	s.takes(t, hourly, 3, 1)
	state, err := s.TakeLimit(t.Context(), "sms", hourly, 2)
	failure := wantError(t, err, client.ErrLimitReached)
	expect.Equal(t, "whether asking again may help", failure.Retryable, true)
	between(t, "the wait of the error", failure.Wait, time.Minute, 10*time.Minute)
	expect.Equal(t, "remaining, where 2 do not fit", state.Remaining, 1)
	between(t, "the reset, where 2 do not fit", state.Reset, time.Minute, 30*time.Minute)
	s.takes(t, hourly, -1, 2)
	must(t, "ResetLimit", s.ResetLimit(t.Context(), "sms"))
	s.takes(t, client.LimitRate{N: 1000, Per: time.Hour}, 1, 999)
	_, err = s.TakeLimit(t.Context(), "brief", client.LimitRate{N: 1, Per: 300 * time.Millisecond}, 1)
	must(t, "TakeLimit", err)
	for _, rate := range []client.LimitRate{{}, {N: 1}, {Per: time.Second}, {N: -1, Per: time.Second}, {N: 1, Per: 400 * 24 * time.Hour}, {N: 1, Per: time.Second, Burst: -1}} {
		_, err := s.TakeLimit(t.Context(), "sms", rate, 1)
		wantError(t, err, client.ErrInvalid, "rate", rate)
	}
}

// The wait is told to the millisecond, where the header has whole seconds.
func TestTheWaitOfALimitIsExact(t *testing.T) {
	refusing := faced(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"code":"limit-reached","retryable":true,"allowed":false,"remaining":2,"reset_ms":900,"retry_after_ms":12}`))
		return true
	})
	state, err := refusing.TakeLimit(t.Context(), "sms", hourly, 3)
	expect.Equal(t, "the wait of the error", wantError(t, err, client.ErrLimitReached).Wait, 12*time.Millisecond)
	expect.Equal(t, "the state", state, client.LimitState{Remaining: 2, Reset: 900 * time.Millisecond})
}

// An answer of which a part is missing is none.
func TestALimitsAnswerThatCannotBeIsAnUnknownOutcome(t *testing.T) {
	for _, body := range []string{`{}`, `{"allowed":false,"remaining":1,"reset_ms":1}`, `{"allowed":true,"remaining":-1,"reset_ms":1}`, `{"allowed":true,"remaining":1,"reset_ms":-1}`, `null`, ``} {
		_, err := answering(t, 200, body).TakeLimit(t.Context(), "sms", hourly, 1)
		wantError(t, err, client.ErrUnknownOutcome, "body", body)
	}
}
