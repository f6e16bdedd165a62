package server_test

import (
	"cmp"
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// wantBetween fails the test if got is not from least to most, both included, and goes on.
func wantBetween[T cmp.Ordered](t testing.TB, asked string, got, least, most T) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %v, want %v to %v", asked, got, least, most)
	}
}

// wantRetryAfter fails the test if the answer's Retry-After is not a number of seconds from least
// to most, both included, and goes on.
func (a answer) wantRetryAfter(t testing.TB, least, most int) {
	t.Helper()
	text := a.header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err != nil || seconds < least || seconds > most {
		t.Errorf("%s: header Retry-After: got %q, want %d to %d seconds", a.asked, text, least, most)
	}
}

// wantField is checkProblem for a problem that names a field, and whose detail has these parts.
func wantField(t testing.TB, a answer, code api.Code, field string, parts ...string) {
	t.Helper()
	problem := checkProblem(t, a, code)
	expect.Equal(t, a.asked+": field", problem.Field, field)
	expect.Contains(t, a.asked+": detail", problem.Detail, parts...)
}

// wantDetail is checkProblem for a problem whose detail has these parts.
func wantDetail(t testing.TB, a answer, code api.Code, parts ...string) {
	t.Helper()
	expect.Contains(t, a.asked+": detail", checkProblem(t, a, code).Detail, parts...)
}

// wantSee is checkProblem for a problem that says where to read on.
func wantSee(t testing.TB, a answer, code api.Code, see string) {
	t.Helper()
	expect.Equal(t, a.asked+": see", checkProblem(t, a, code).See, see)
}
