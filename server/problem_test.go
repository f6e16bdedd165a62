package server_test

import (
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

// contract is the table of errors as the service's outside contract has it, and whether the same
// request may succeed later.
var contract = map[api.Code]struct {
	status    int
	retryable bool
}{
	"invalid-request":              {400, false},
	"invalid-name":                 {400, false},
	"idempotency-key-missing":      {400, false},
	"idempotency-key-malformed":    {400, false},
	"unauthorized":                 {401, false},
	"forbidden":                    {403, false},
	"not-found":                    {404, false},
	"method-not-allowed":           {405, false},
	"idempotency-in-progress":      {409, true},
	"idempotency-outcome-unknown":  {409, false},
	"attempt-running":              {409, true},
	"not-in-doubt":                 {409, false},
	"idempotency-superseded":       {409, false},
	"idempotency-payload-mismatch": {422, false},
	"idempotency-token-unknown":    {410, false},
	"not-an-integer":               {409, false},
	"counter-overflow":             {409, false},
	"counter-limit":                {409, false},
	"counter-behind":               {409, false},
	"layout-mismatch":              {409, false},
	"lock-held":                    {409, true},
	"lease-lost":                   {410, false},
	"pool-exhausted":               {503, true},
	"pool-quarantined":             {503, true},
	"pool-exists":                  {409, false},
	"layout-used-up":               {503, false},
	"payload-too-large":            {413, false},
	"unsupported-encoding":         {415, false},
	"too-many-requests":            {429, true},
	"limit-reached":                {429, true},
	"store-unavailable":            {503, true},
	"store-unsuitable":             {503, false},
	"store-newer":                  {503, false},
	"outcome-unknown":              {503, false},
	"upstream-unavailable":         {503, true}, // of the gateway
	"overloaded":                   {503, true},
	"internal-error":               {500, false},
}

// checkProblem tells what is wrong with an answer that should be a problem of this code, and
// decodes it.
func checkProblem(t testing.TB, a answer, code api.Code) api.Problem {
	t.Helper()
	want, known := contract[code]
	if !known {
		t.Fatalf("%s is no code of the contract", code)
	}
	var problem api.Problem
	if err := strictly(a.body, &problem); err != nil {
		t.Fatalf("%v; want a problem of code %s: %v", a, code, err)
	}
	kind, _ := api.Lookup(code)
	id := a.header.Get("X-Request-Id")
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"code", problem.Code, code},
		{"status", a.status, want.status},
		{"status member", problem.Status, want.status},
		{"content type", a.header.Get("Content-Type"), "application/problem+json"},
		{"type", problem.Type, "/problems/" + string(code)},
		{"title", problem.Title, kind.Title},
		{"retryable", problem.Retryable, want.retryable},
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

func TestEveryCodeOfTheContractIsInTheCatalogueAndNoOther(t *testing.T) {
	for code, want := range contract {
		kind, known := api.Lookup(code)
		if !known || kind.Status != want.status || kind.Retryable != want.retryable {
			t.Errorf("the catalogue's %s: got %+v, known: %v; want status %d, retryable: %v", code, kind, known, want.status, want.retryable)
		}
	}
	for _, code := range api.Codes() {
		if _, known := contract[code]; !known {
			t.Errorf("%s is in the catalogue and not in the contract", code)
		}
	}
}

func TestEveryProblemTypeIsAPage(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	for code := range contract {
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
