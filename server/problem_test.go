package server_test

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// checkProblem tells what is wrong with an answer that should be a problem of this code, and
// decodes it.
func checkProblem(t testing.TB, a answer, code api.Code) api.Problem {
	t.Helper()
	kind, known := api.Lookup(code)
	if !known {
		t.Fatalf("%s is no code of the catalogue", code)
	}
	var problem api.Problem
	expect.NoError(t, fmt.Sprintf("%v; want a problem of code %s", a, code), strictly(a.body, &problem))
	id := a.header.Get("X-Request-Id")
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"code", problem.Code, code},
		{"status", a.status, kind.Status},
		{"status member", problem.Status, kind.Status},
		{"content type", a.header.Get("Content-Type"), "application/problem+json"},
		{"type", problem.Type, "/problems/" + string(code)},
		{"title", problem.Title, kind.Title},
		{"retryable", problem.Retryable, kind.Retryable},
		{"instance", problem.Instance, "urn:request:" + id},
		{"request id present", id != "", true},
		{"Cache-Control", a.header.Get("Cache-Control"), "no-store"},
		{"short enough to be read", len(a.body) < 1500, true},
	} {
		if check.got != check.want {
			t.Errorf("%s: %s %v, want %v: %.400s", a.asked, check.what, check.got, check.want, a.body)
		}
	}
	if wait := a.header.Get("Retry-After"); wait != "" {
		if seconds, err := strconv.Atoi(wait); err != nil || seconds < 1 {
			t.Errorf("%s: Retry-After %q, want whole seconds from 1", a.asked, wait)
		}
	}
	return problem
}

func TestEveryProblemTypeIsAPage(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	for _, code := range api.Codes() {
		page := s.do(t, "GET", "/problems/"+string(code), "")
		kind, _ := api.Lookup(code)
		page.wantStatus(t, 200)
		if media := page.header.Get("Content-Type"); !strings.HasPrefix(media, "text/html") {
			t.Errorf("%s: header Content-Type: got %q, want text/html", page.asked, media)
		}
		expect.Contains(t, page.asked, html.UnescapeString(string(page.body)), string(code), kind.Title, kind.Help, strconv.Itoa(kind.Status))
	}
	checkProblem(t, s.do(t, "GET", "/problems/%3Cscript%3E", ""), api.NotFound)
}
