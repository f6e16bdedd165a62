package api

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestEveryCodeHasAKindThatPeopleCanRead(t *testing.T) {
	for _, code := range Codes() {
		kind, _ := Lookup(code)
		if kind.Status < 400 || kind.Status > 599 || kind.Title == "" || kind.Help == "" {
			t.Errorf("%s: got %+v, want a status from 400 to 599, a title and a help", code, kind)
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
		t.Fatalf("reading the problem: %v: %s", err, w.Body)
	}
	expect.Equal(t, "status", w.Code, 409)
	expect.Equal(t, "header Retry-After for a wait of 1.2 s", w.Header().Get("Retry-After"), "2")
	expect.Equal(t, "header Content-Type", w.Header().Get("Content-Type"), "application/problem+json")
	kind, _ := Lookup(InProgress)
	expect.Equal(t, "the problem", got, Problem{
		Type: "/problems/idempotency-in-progress", Title: kind.Title, Status: 409, Detail: "still running", Instance: "urn:request:abc", Code: InProgress, Retryable: true,
	})
}

func TestAnUnknownCodeIsAnInternalError(t *testing.T) {
	problem := NewProblem("nonsense", "")
	expect.Equal(t, `NewProblem("nonsense"): status`, problem.Status, 500)
	expect.Equal(t, `NewProblem("nonsense"): code`, problem.Code, InternalError)
}
