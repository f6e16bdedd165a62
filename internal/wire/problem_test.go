package wire

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"
)

func TestEveryCodeHasAKindThatPeopleCanRead(t *testing.T) {
	for _, code := range Codes() {
		kind, _ := Lookup(code)
		if kind.Status < 400 || kind.Status > 599 || kind.Title == "" || kind.Help == "" {
			t.Errorf("%s: %+v", code, kind)
		}
	}
}

func TestWriteRoundsTheWaitUpAndNamesTheRequest(t *testing.T) {
	problem := NewProblem(InProgress, "still running")
	problem.RetryAfter = 1200 * time.Millisecond
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "abc")
	problem.Write(w)

	var got Problem
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != 409 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if got.Instance != "urn:request:abc" || got.Type != "/problems/idempotency-in-progress" || !got.Retryable || got.Detail != "still running" {
		t.Errorf("%+v", got)
	}
}

func TestAnUnknownCodeIsAnInternalError(t *testing.T) {
	if problem := NewProblem("nonsense", ""); problem.Status != 500 || problem.Code != InternalError {
		t.Errorf("%+v", problem)
	}
}
