package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

const payment = `{"amount":1299,"currency":"EUR","to":"acct_1"}`

// guarded is a service with a guarded route /slow, whose handler waits for the test, and routes for other ends of a handler.
type guarded struct {
	*service
	begun   chan struct{} // one for each run of /slow
	proceed chan struct{} // one lets one run go on
}

func newGuarded(t *testing.T, store *redisstore.Store) *guarded {
	g := &guarded{begun: make(chan struct{}, 100), proceed: make(chan struct{})}
	add := func(s *server.Server, path string, handler func(http.ResponseWriter, *http.Request) error) {
		s.HandleGuarded("POST", path, idempotency.Route{Name: "POST " + path}, handler)
	}
	g.service = serve(t, server.Config{Store: store, Dev: true}, func(s *server.Server) {
		add(s, "/slow", func(w http.ResponseWriter, _ *http.Request) error {
			g.begun <- struct{}{}
			<-g.proceed
			_, err := w.Write([]byte("slow"))
			return err
		})
		add(s, "/rich", func(w http.ResponseWriter, r *http.Request) error {
			attempt, _ := idempotency.FromContext(r.Context())
			w.Header().Set("Set-Cookie", "session=secret")
			w.Header().Set("Location", "/rich/1")
			w.Header().Add("X-Many", "one")
			w.Header().Add("X-Many", "two")
			w.Header().Set("Connection", "X-Hop")
			w.Header().Set("X-Hop", "this connection's")
			w.Header().Set("X-Fence", strconv.FormatInt(attempt.Fence, 10))
			w.WriteHeader(http.StatusAccepted)
			_, err := w.Write([]byte("\x00\xff binary \r\n"))
			return err
		})
		add(s, "/panic", func(http.ResponseWriter, *http.Request) error { panic("in the middle of it") })
		add(s, "/error", func(http.ResponseWriter, *http.Request) error { return errors.New("in the end") })
	})
	return g
}

func TestGuardedRoutesOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		g := newGuarded(t, store)
		t.Run("a header is missing or malformed and nothing runs", g.badHeader)
		t.Run("a key is the same quoted and bare", g.sameKey)
		t.Run("the first attempt is in progress", g.inProgress)
		t.Run("a panic leaves the outcome unknown", g.panics)
		t.Run("a client that hangs up does not undo its operation", g.hangUp)
		t.Run("a token is for one payload, route and scope", g.mismatch)
		t.Run("a key of another route is another operation", g.otherRoute)
		t.Run("a token was never issued or has expired", g.unknown)
		t.Run("a repeat gets the same answer", g.replay)
		t.Run("an error is an answer, too", g.failure)
		t.Run("a failed check gives the token back", g.failedCheck)
		t.Run("of many at once one runs", g.manyAtOnce)
	})
}

func (g *guarded) badHeader(t *testing.T) {
	before := g.ledger(t).Total
	token := g.issue(t, "")
	if problem := checkProblem(t, g.do(t, "POST", "/payments", payment), wire.KeyMissing); problem.See != "/idempotency-policy" {
		t.Errorf("%+v", problem)
	}
	var headers [][]string
	for _, key := range badKeys {
		headers = append(headers, []string{"Idempotency-Key: " + key})
	}
	for _, token := range []string{"", "a b", `"` + token + `"`, token + "," + token, token + ";x=1", token + "/", "é", strings.Repeat("a", 256)} {
		headers = append(headers, []string{"Idempotency-Token: " + token})
	}
	headers = append(headers,
		[]string{"Idempotency-Key: a", "Idempotency-Key: a"},
		[]string{"Idempotency-Key: a", "Idempotency-Key: b"},
		[]string{"Idempotency-Token: " + token, "Idempotency-Token: " + token},
		[]string{"Idempotency-Token: " + token, "Idempotency-Key: a"},
		[]string{"Idempotency-Token: " + token, "Idempotency-Key: "})
	for _, header := range headers {
		if problem := checkProblem(t, g.do(t, "POST", "/payments", payment, header...), wire.KeyMalformed); problem.See != "/idempotency-policy" {
			t.Errorf("%q: %+v", header, problem)
		}
	}
	if after := g.ledger(t).Total; after != before || g.state(t, token) != "issued" {
		t.Errorf("%d payments became %d, the token is %s", before, after, g.state(t, token))
	}
}

func (g *guarded) sameKey(t *testing.T) {
	for bare, quoted := range map[string]string{
		"order-1": `"order-1"`, "a:b/c?d=e&f": `"a:b/c?d=e&f"`, "{}[]()<>@!*'~^|`": "\"{}[]()<>@!*'~^|`\"", strings.Repeat("k", 255): `"` + strings.Repeat("k", 255) + `"`,
	} {
		first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+bare)
		decode[wire.Payment](t, first, 201)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+quoted), first)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key:  "+quoted+" "), first)
	}
	for escaped, plain := range map[string]string{`"q\"q"`: `"q\"q"`, `"s\\s"`: ` "s\\s"`, `"with space"`: `"with space"`, `"a,b;c"`: `"a,b;c"`} { // only quoted
		first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+escaped)
		decode[wire.Payment](t, first, 201)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+plain), first)
	}
}

// wantReplay checks that an answer is the one that was given before.
func wantReplay(t *testing.T, a, first answer) {
	t.Helper()
	if a.status != first.status || !bytes.Equal(a.body, first.body) {
		t.Errorf("replayed %d %q, want %d %q", a.status, a.body, first.status, first.body)
	}
	if a.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("Idempotent-Replayed: %q, at first %q", a.header.Get("Idempotent-Replayed"), first.header.Get("Idempotent-Replayed"))
	}
	if a.header.Get("X-Request-Id") == first.header.Get("X-Request-Id") {
		t.Error("the request id was replayed")
	}
	for name, values := range first.header {
		own := []string{"Date", "X-Request-Id", "Set-Cookie", "Connection", "X-Hop", "Content-Length"}
		if !slices.Contains(own, name) && !slices.Equal(a.header.Values(name), values) {
			t.Errorf("%s: replayed %q, want %q", name, a.header.Values(name), values)
		}
	}
}

func (g *guarded) inProgress(t *testing.T) {
	token := g.issue(t, "")
	for header, see := range map[string]string{"Idempotency-Token: " + token: "/token/" + token, "Idempotency-Key: progress": "/idempotency-policy"} {
		first := make(chan answer, 1)
		go func() {
			a, err := g.send(context.WithoutCancel(t.Context()), call{method: "POST", path: "/slow", header: []string{header}})
			if err != nil {
				t.Error(err)
			}
			first <- a
		}()
		<-g.begun
		for range 3 {
			a := g.do(t, "POST", "/slow", "", header)
			problem := checkProblem(t, a, wire.InProgress)
			if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 30 || problem.See != see {
				t.Errorf("%v %+v", a.header, problem)
			}
		}
		checkProblem(t, g.do(t, "POST", "/slow", "other", header), wire.PayloadMismatch)
		g.proceed <- struct{}{}
		answered := <-first
		wantReplay(t, g.do(t, "POST", "/slow", "", header), answered)
	}
	if len(g.begun) != 0 {
		t.Errorf("it ran %d times more", len(g.begun))
	}
}

func (g *guarded) panics(t *testing.T) {
	token := g.issue(t, "")
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Token: "+token), wire.InternalError)
	for range 2 {
		a := g.do(t, "POST", "/panic", "", "Idempotency-Token: "+token)
		if problem := checkProblem(t, a, wire.IdempotencyUnknown); problem.See != "/token/"+token || a.header.Get("Retry-After") != "" {
			t.Errorf("%v %+v", a.header, problem)
		}
	}
	if state := g.state(t, token); state != "in-doubt" {
		t.Errorf("state %s", state)
	}
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Key: panic"), wire.InternalError)
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Key: panic"), wire.IdempotencyUnknown)
}

func (g *guarded) hangUp(t *testing.T) {
	token := g.issue(t, "")
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := g.send(ctx, call{method: "POST", path: "/slow", header: []string{"Idempotency-Token: " + token}})
		gone <- err
	}()
	<-g.begun
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g.proceed <- struct{}{}
	eventually(t, "the answer is recorded", func() bool { return g.state(t, token) == "completed" })
	if a := g.do(t, "POST", "/slow", "", "Idempotency-Token: "+token); a.status != 200 || string(a.body) != "slow" || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func (g *guarded) mismatch(t *testing.T) {
	before := g.ledger(t).Total
	token, scoped := g.issue(t, `{"scope":"payments"}`), g.issue(t, `{"scope":"refunds"}`)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+scoped), wire.PayloadMismatch)
	checkProblem(t, g.do(t, "POST", "/rich", payment, "Idempotency-Token: "+scoped), wire.PayloadMismatch)
	must[wire.Payment](t, g.service, 201, "POST", "/payments", payment, "Idempotency-Token: "+token)
	for path, body := range map[string]string{
		"/payments": strings.Replace(payment, "1299", "1300", 1), "/rich": payment,
	} {
		checkProblem(t, g.do(t, "POST", path, body, "Idempotency-Token: "+token), wire.PayloadMismatch)
	}
	checkProblem(t, g.do(t, "POST", "/payments", "", "Idempotency-Token: "+token), wire.PayloadMismatch)

	remote := g.issue(t, "")
	g.claim(t, remote, `{"fingerprint":"f"}`)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+remote), wire.PayloadMismatch)
	if after := g.ledger(t).Total; after != before+1 || g.state(t, scoped) != "issued" {
		t.Errorf("%d payments became %d, the refused token is %s", before, after, g.state(t, scoped))
	}
}

func (g *guarded) otherRoute(t *testing.T) {
	first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: everywhere")
	decode[wire.Payment](t, first, 201)
	if a := g.do(t, "POST", "/rich", payment, "Idempotency-Key: everywhere"); a.status != 202 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: everywhere"), first)
	checkProblem(t, g.do(t, "POST", "/payments", `{"amount":1,"currency":"EUR","to":"a"}`, "Idempotency-Key: everywhere"), wire.PayloadMismatch)
}

func (g *guarded) unknown(t *testing.T) {
	before := g.ledger(t).Total
	brief := g.issue(t, `{"ttl_ms":1000}`)
	for _, never := range []string{"never", "AAAAAAAAAAAAAAAAAAAAAA", brief + "x", brief[1:], strings.ToUpper(brief) + "-"} {
		if problem := checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+never), wire.TokenUnknown); problem.See != "" {
			t.Errorf("%+v", problem)
		}
	}
	eventually(t, "the token expires", func() bool { return g.do(t, "GET", "/token/"+brief, "").status == 410 })
	checkProblem(t, g.do(t, "GET", "/token/"+brief, ""), wire.TokenUnknown)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+brief), wire.TokenUnknown)
	checkProblem(t, g.do(t, "POST", "/token/"+brief+"/claim", `{"fingerprint":"f"}`), wire.TokenUnknown)
	if after := g.ledger(t).Total; after != before {
		t.Errorf("%d payments became %d", before, after)
	}
}

func (g *guarded) replay(t *testing.T) {
	token := g.issue(t, "")
	first := g.do(t, "POST", "/rich", "body", "Idempotency-Token: "+token)
	if first.status != 202 || first.header.Get("Set-Cookie") == "" || first.header.Get("X-Hop") == "" || len(first.header.Values("X-Many")) != 2 {
		t.Fatalf("%d %v", first.status, first.header)
	}
	status := must[wire.TokenStatus](t, g.service, 200, "GET", "/token/"+token, "")
	if status.State != "completed" || status.Attempts != 1 || strconv.FormatInt(status.Fence, 10) != first.header.Get("X-Fence") {
		t.Errorf("%+v, the handler had fence %s", status, first.header.Get("X-Fence"))
	}
	for range 3 {
		again := g.do(t, "POST", "/rich", "body", "Idempotency-Token: "+token)
		wantReplay(t, again, first)
		if again.header.Get("Set-Cookie") != "" || again.header.Get("X-Hop") != "" {
			t.Errorf("replayed what belongs to one client or connection: %v", again.header)
		}
	}
}

func (g *guarded) failure(t *testing.T) {
	first := g.do(t, "POST", "/error", "", "Idempotency-Key: error")
	checkProblem(t, first, wire.InternalError)
	wantReplay(t, g.do(t, "POST", "/error", "", "Idempotency-Key: error"), first)
}

func (g *guarded) failedCheck(t *testing.T) {
	token := g.issue(t, "")
	for range 2 {
		checkProblem(t, g.do(t, "POST", "/payments", `{"amount":0}`, "Idempotency-Token: "+token), wire.InvalidRequest)
		if state := g.state(t, token); state != "issued" {
			t.Fatalf("state %s", state)
		}
	}
	paid := must[wire.Payment](t, g.service, 201, "POST", "/payments", payment, "Idempotency-Token: "+token)
	if paid.Amount != 1299 || paid.Currency != "EUR" || paid.To != "acct_1" || paid.ID == "" || paid.Fence < 1 || paid.ChargedAt.IsZero() {
		t.Errorf("%+v", paid)
	}
	if status := must[wire.TokenStatus](t, g.service, 200, "GET", "/token/"+token, ""); status.Attempts != 3 || status.Fence != paid.Fence {
		t.Errorf("%+v after %+v", status, paid)
	}
}

func (g *guarded) manyAtOnce(t *testing.T) {
	before := g.ledger(t).Total
	answers := make([]answer, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			a, err := g.send(context.WithoutCancel(t.Context()), call{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Key: at-once"}})
			if err != nil {
				t.Error(err)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	last := g.do(t, "POST", "/payments", payment, "Idempotency-Key: at-once")
	made := map[string]int{}
	for _, a := range answers {
		if a.status == 201 {
			made[string(a.body)]++
		} else {
			checkProblem(t, a, wire.InProgress)
		}
	}
	if len(made) != 1 || made[string(last.body)] == 0 || last.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d different answers: %v; the repeat: %v %s", len(made), made, last.header, last.body)
	}
	ledger := g.ledger(t)
	if newest := ledger.Payments[len(ledger.Payments)-1]; ledger.Total != before+1 || !strings.Contains(string(last.body), fmt.Sprintf("%q", newest.ID)) {
		t.Errorf("%d payments became %d; the newest is %+v", before, ledger.Total, newest)
	}
}
