package server_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// inDoubt claims a new token whose attempt then says that it ended without an answer.
func (s *service) inDoubt(t *testing.T, fingerprint string) (token string) {
	t.Helper()
	token = must[api.TokenIssued](t, s, 201, "POST", "/token", "").Token
	claimed := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"`+fingerprint+`","lease_ms":100}`, "X-Request-Id: r-"+fingerprint)
	expect.Equal(t, "outcome of the claim", claimed.Outcome, "granted")
	expect.Eventually(t, "the token is in doubt", func() bool {
		return must[api.TokenStatus](t, s, 200, "GET", "/token/"+token, "").State == "in-doubt"
	})
	return token
}

func TestOperatorFindsOperationsInDoubtAndSettlesThem(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	tokens := map[string]string{}
	for _, fate := range []string{"completed", "not-begun", "refused"} {
		tokens[fate] = s.inDoubt(t, fate)
	}
	page := must[api.Operations](t, s, 200, "GET", "/operation?state=in-doubt", "")
	if len(page.Operations) != 3 || page.Next != "" {
		t.Fatalf("GET /operation?state=in-doubt: got %+v, want three operations and no cursor", page)
	}
	byRequest := map[string]api.Operation{}
	for _, operation := range page.Operations {
		byRequest[operation.RequestID] = operation
		if operation.Since.IsZero() || operation.RanForMs == nil || operation.Attempts != 1 || operation.Fence == 0 || operation.State != "in-doubt" {
			t.Errorf("GET /operation?state=in-doubt: got %+v, want since, ran_for_ms, one attempt and a fence", operation)
		}
	}
	for fate, token := range tokens {
		name := byRequest["r-"+fate].Operation
		refused := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"`+fate+`"}`, "X-Request-Id: again-"+fate)
		s.logLine(t, "msg=request", "request_id=again-"+fate, "code=idempotency-outcome-unknown", "operation="+name)
		problem := checkProblem(t, refused, api.IdempotencyUnknown)
		expect.Equal(t, "operation in the problem of "+fate, problem.Operation, name)
		body := `{"outcome":"` + fate + `","reason":"ticket 7"}`
		if fate == "completed" {
			body = `{"outcome":"completed","status":201,"headers":{"Content-Type":"text/plain"},"body_base64":"` + base64.StdEncoding.EncodeToString([]byte("paid")) + `","reason":"ticket 7"}`
		}
		for range 2 { // repeating it is harmless
			s.do(t, "POST", "/operation/"+name+"/settle", body).wantStatus(t, 204)
		}
		expect.Equal(t, "decision shown of "+fate, must[api.Operation](t, s, 200, "GET", "/operation/"+name, "").Decision, api.Decision(fate))
	}
	states := map[string]api.State{"completed": "completed", "not-begun": "issued", "refused": "refused"}
	for fate, token := range tokens {
		shown := must[api.Operation](t, s, 200, "GET", "/operation/"+byRequest["r-"+fate].Operation, "")
		expect.Equal(t, "state of the operation that is settled as "+fate, shown.State, states[fate])
		expect.Equal(t, "state of its token", s.state(t, token), states[fate])
		if !shown.Since.IsZero() || shown.RanForMs != nil {
			t.Errorf("the operation that is settled as %s: got %+v, want it in doubt no longer", fate, shown)
		}
	}
	checkProblem(t, s.do(t, "GET", "/token?state=in-doubt", ""), api.MethodNotAllowed)
	expect.Equal(t, "operations in doubt after all were settled", must[api.Operations](t, s, 200, "GET", "/operation?state=in-doubt", ""), api.Operations{Operations: []api.Operation{}})

	claim := func(fate string) answer {
		return s.do(t, "POST", "/token/"+tokens[fate]+"/claim", `{"fingerprint":"`+fate+`"}`)
	}
	replay := decode[api.Claimed](t, claim("completed"), 200)
	expect.Equal(t, "the claim of what was completed", []any{replay.Outcome, replay.Response.Status, string(replay.Response.Body)}, []any{"replay", 201, "paid"})
	again := decode[api.Claimed](t, claim("not-begun"), 200)
	expect.Equal(t, "the claim of what had not begun", []any{again.Outcome, again.Attempt}, []any{"granted", 2})
	expect.Contains(t, "the claim of what was refused", checkProblem(t, claim("refused"), api.IdempotencyUnknown).Detail, "closed it")
	running := checkProblem(t, s.do(t, "POST", "/operation/"+byRequest["r-not-begun"].Operation+"/settle", `{"outcome":"refused"}`), api.AttemptRunning)
	expect.Equal(t, "attempt-running is retryable", running.Retryable, true)
	checkProblem(t, s.do(t, "POST", "/operation/"+byRequest["r-completed"].Operation+"/settle", `{"outcome":"refused"}`), api.NotInDoubt)
}

// The customer has left: no request comes again, and the figures say what is open all the same, the
// same ones on /metrics and on the console.
func TestOperationsInDoubtAreCountedThoughNobodyAsksAgain(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for _, fingerprint := range []string{"a", "b", "c"} {
		s.inDoubt(t, fingerprint)
	}
	const count = `operations_in_doubt{scope="other"}`
	found := map[string]float64{}
	expect.Eventually(t, "the oldest has an age", func() bool {
		s.server.LookAgain()
		text := string(s.do(t, "GET", "/metrics", "").body)
		found = readFigures(t, text)
		return found[count] == 3 && !strings.Contains(text, `oldest_seconds{scope="other"} 0`+"\n")
	})
	expect.Equal(t, count, found[count], 3)
	expect.Equal(t, "repeats that were refused", found[`token_claims_total{outcome="in_doubt"}`], 0)
	oldest := must[api.Operations](t, s, 200, "GET", "/operation?state=in-doubt", "").Operations[0]
	shown := must[api.History](t, s, 200, "GET", "/console/api/history", "").InDoubt
	expect.Equal(t, "in doubt on the console", shown, &api.InDoubt{Operations: 3, Since: oldest.Since})
	s.do(t, "POST", "/operation/"+oldest.Operation+"/settle", `{"outcome":"refused"}`).wantStatus(t, 204)
	expect.Equal(t, "after one was settled", must[api.History](t, s, 200, "GET", "/console/api/history", "").InDoubt.Operations, 2)
}

func TestSettlementIsTiedToWhoAndWhyInEventsAndLog(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	token := decode[api.TokenIssued](t, g.as(t, "use", "POST", "/token", ""), 201).Token
	g.as(t, "use", "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`).wantStatus(t, 200)
	var operation string
	expect.Eventually(t, "the operation is in doubt", func() bool {
		page := decode[api.Operations](t, g.as(t, "admin", "GET", "/operation?state=in-doubt", ""), 200)
		if len(page.Operations) > 0 {
			operation = page.Operations[0].Operation
		}
		return operation != ""
	})
	for _, caller := range []string{"read", "use"} {
		checkProblem(t, g.as(t, caller, "GET", "/operation?state=in-doubt", ""), api.Forbidden)
		checkProblem(t, g.as(t, caller, "POST", "/operation/"+operation+"/settle", `{"outcome":"refused"}`), api.Forbidden)
	}
	events := g.listen(t, g.bearer("admin")...)
	events.until("hello")
	g.as(t, "admin", "POST", "/operation/"+operation+"/settle", `{"outcome":"refused","reason":"ticket 8"}`).wantStatus(t, 204)
	for {
		event, _ := events.event()
		if event.Kind != "operation.settled" {
			continue // a refusal of before
		}
		expect.Equal(t, "the event of the settlement", []string{event.Operation, event.Outcome, event.By, event.Reason}, []string{operation, "refused", "admin", "ticket 8"})
		break
	}
	line := g.logLine(t, "an operation in doubt was settled", operation)
	expect.Contains(t, "the line of the log", line, `outcome=refused`, `by=`, `reason="ticket 8"`)
	if strings.Contains(g.log.String(), token) {
		t.Errorf("the log holds the token %s:\n%s", token, g.log)
	}
}

func TestBadSettlementsAreRefusedWithTheField(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	const known = "/operation/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, row := range []struct {
		method, path, body string
		code               api.Code
		field              string
	}{
		{"GET", "/operation", "", api.InvalidRequest, "state"},
		{"GET", "/operation?state=issued", "", api.InvalidRequest, "state"},
		{"GET", "/operation?state=in-doubt&n=0", "", api.InvalidRequest, "n"},
		{"GET", "/operation?state=in-doubt&cursor=x", "", api.InvalidRequest, "cursor"},
		{"GET", "/operation?state=in-doubt&prefix=" + strings.Repeat("a", 201), "", api.InvalidRequest, "prefix"},
		{"GET", "/operation/short", "", api.InvalidName, "operation"},
		{"GET", known, "", api.OperationUnknown, ""},
		{"POST", known + "/settle", `{"outcome":"refused"}`, api.OperationUnknown, ""},
		{"POST", known + "/settle", `{}`, api.InvalidRequest, "outcome"},
		{"POST", known + "/settle", `{"outcome":"maybe"}`, api.InvalidRequest, "outcome"},
		{"POST", known + "/settle", `{"outcome":"completed"}`, api.InvalidRequest, "status"},
		{"POST", known + "/settle", `{"outcome":"completed","status":99}`, api.InvalidRequest, "status"},
		{"POST", known + "/settle", `{"outcome":"refused","status":200}`, api.InvalidRequest, "status"},
		{"POST", known + "/settle", `{"outcome":"refused","reason":"` + strings.Repeat("a", 501) + `"}`, api.InvalidRequest, "reason"},
		{"POST", known + "/settle", `{"outcome":"refused","because":"x"}`, api.InvalidRequest, ""},
	} {
		problem := checkProblem(t, s.do(t, row.method, row.path, row.body), row.code)
		if row.field != "" {
			expect.Equal(t, row.method+" "+row.path+" "+row.body+": field", problem.Field, row.field)
		}
	}
}

// A name is a digest of what others may know: a stranger who computes it learns nothing, whether
// the operation has a principal or none.
func TestOperationIsShownToItsPrincipalAndToOperatorsOverAllNames(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	g := serveKeyed(t, server.Config{Store: store}, map[string]access.Record{
		"limited admin": {Role: access.Admin, Names: access.Names{"orders:*"}}, "all": {Role: access.Admin}, "mate": {Role: access.Use},
	})
	claimed := must[api.Claimed](t, g.service, 200, "POST", "/operation/claim", `{"key":"k","scope":"orders:1","fingerprint":"f"}`, g.bearer("own")...)
	tokens := idempotency.New(store, idempotency.Config{})
	nobodys := idempotency.Key{Scope: "*", ID: "evt_1"}
	_, err := tokens.Claim(t.Context(), nobodys, idempotency.ClaimOptions{Fingerprint: "f"})
	expect.Error(t, "claim without a principal", err, nil)
	for caller, row := range map[string][2]int{"own": {200, 410}, "all": {200, 200}, "mate": {410, 410}, "limited admin": {410, 410}} {
		for i, name := range []string{claimed.Operation, nobodys.Operation()} {
			g.do(t, "GET", "/operation/"+name, "", g.bearer(caller)...).wantStatus(t, row[i])
		}
		for _, ask := range [][2]string{{"DELETE", ""}, {"POST", "/settle"}} {
			if caller != "all" {
				g.do(t, ask[0], "/operation/"+claimed.Operation+ask[1], `{"outcome":"refused"}`, g.bearer(caller)...).wantStatus(t, 403)
			}
		}
	}
}
