package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

const payment = `{"amount":1299,"currency":"EUR","to":"acct_1"}`

// guarded is a service with a guarded route /slow, whose handler waits for the test, and routes for
// other ends of a handler.
type guarded struct {
	*service
	begun   chan struct{} // one for each run of /slow
	proceed chan struct{} // one lets one run go on
}

func newGuarded(t *testing.T, store *redisstore.Store) *guarded {
	g := &guarded{begun: make(chan struct{}, 100), proceed: make(chan struct{})}
	add := func(s *server.Server, path string, handler func(http.ResponseWriter, *http.Request) error) {
		s.HandleGuarded("POST", path, idempotency.Route{Name: "POST " + path, Lease: time.Hour}, handler)
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
	t.Parallel()
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
	wantSee(t, g.do(t, "POST", "/payments", payment), api.KeyMissing, "/idempotency-policy")
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
		[]string{"Idempotency-Token: a b", "Idempotency-Key: a"})
	for _, header := range headers {
		wantSee(t, g.do(t, "POST", "/payments", payment, header...), api.KeyMalformed, "/idempotency-policy")
	}
	expect.Equal(t, "payments after requests that were refused", g.ledger(t).Total, before)
	expect.Equal(t, "the token after requests that were refused", g.state(t, token), "issued")
}

func (g *guarded) sameKey(t *testing.T) {
	for bare, quoted := range map[string]string{
		"order-1": `"order-1"`, "a:b/c?d=e&f": `"a:b/c?d=e&f"`, "{}[]()<>@!*'~^|`": "\"{}[]()<>@!*'~^|`\"", strings.Repeat("k", 255): `"` + strings.Repeat("k", 255) + `"`,
	} {
		first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+bare)
		decode[api.Payment](t, first, 201)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+quoted), first)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key:  "+quoted+" "), first)
	}
	// only quoted
	for escaped, plain := range map[string]string{`"q\"q"`: `"q\"q"`, `"s\\s"`: ` "s\\s"`, `"with space"`: `"with space"`, `"a,b;c"`: `"a,b;c"`} {
		first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+escaped)
		decode[api.Payment](t, first, 201)
		wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: "+plain), first)
	}
}

// wantReplay checks that an answer is the one that was given before.
func wantReplay(t *testing.T, a, first answer) {
	t.Helper()
	a.wantStatus(t, first.status)
	a.wantBody(t, string(first.body))
	a.wantHeader(t, "Idempotent-Replayed", "true")
	first.wantHeader(t, "Idempotent-Replayed", "")
	if id := a.header.Get("X-Request-Id"); id == first.header.Get("X-Request-Id") {
		t.Errorf("%s: the request id %q was replayed, want another", a.asked, id)
	}
	for name, values := range first.header {
		own := []string{"Date", "X-Request-Id", "Set-Cookie", "Connection", "X-Hop", "Content-Length"}
		if !slices.Contains(own, name) && !slices.Equal(a.header.Values(name), values) {
			t.Errorf("%s: header %s: replayed %q, want %q", a.asked, name, a.header.Values(name), values)
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
				t.Errorf("POST /slow with %s: %v", header, err)
			}
			first <- a
		}()
		<-g.begun
		for range 3 {
			a := g.do(t, "POST", "/slow", "", header)
			wantSee(t, a, api.InProgress, see)
			a.wantRetryAfter(t, 1, 3600)
		}
		checkProblem(t, g.do(t, "POST", "/slow", "other", header), api.PayloadMismatch)
		g.proceed <- struct{}{}
		answered := <-first
		wantReplay(t, g.do(t, "POST", "/slow", "", header), answered)
	}
	expect.Equal(t, "runs of POST /slow besides the two first attempts", len(g.begun), 0)
}

func (g *guarded) panics(t *testing.T) {
	token := g.issue(t, "")
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Token: "+token), api.InternalError)
	for range 2 {
		a := g.do(t, "POST", "/panic", "", "Idempotency-Token: "+token)
		wantSee(t, a, api.IdempotencyUnknown, "/token/"+token)
		a.wantHeader(t, "Retry-After", "")
	}
	expect.Equal(t, "the token after a panic: state", g.state(t, token), "in-doubt")
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Key: panic"), api.InternalError)
	checkProblem(t, g.do(t, "POST", "/panic", "", "Idempotency-Key: panic"), api.IdempotencyUnknown)
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
	expect.Error(t, "POST /slow of a client that hangs up", <-gone, context.Canceled)
	g.proceed <- struct{}{}
	expect.Eventually(t, "the answer is recorded", func() bool { return g.state(t, token) == "completed" })
	a := g.do(t, "POST", "/slow", "", "Idempotency-Token: "+token)
	a.wantStatus(t, 200)
	a.wantBody(t, "slow")
	a.wantHeader(t, "Idempotent-Replayed", "true")
}

func (g *guarded) mismatch(t *testing.T) {
	before := g.ledger(t).Total
	token, scoped := g.issue(t, `{"scope":"payments"}`), g.issue(t, `{"scope":"refunds"}`)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+scoped), api.PayloadMismatch)
	checkProblem(t, g.do(t, "POST", "/rich", payment, "Idempotency-Token: "+scoped), api.PayloadMismatch)
	must[api.Payment](t, g.service, 201, "POST", "/payments", payment, "Idempotency-Token: "+token)
	for path, body := range map[string]string{
		"/payments": strings.Replace(payment, "1299", "1300", 1), "/rich": payment,
	} {
		checkProblem(t, g.do(t, "POST", path, body, "Idempotency-Token: "+token), api.PayloadMismatch)
	}
	checkProblem(t, g.do(t, "POST", "/payments", "", "Idempotency-Token: "+token), api.PayloadMismatch)

	remote := g.issue(t, "")
	g.claim(t, remote, `{"fingerprint":"f"}`)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+remote), api.PayloadMismatch)
	expect.Equal(t, "payments made", g.ledger(t).Total-before, 1)
	expect.Equal(t, "the token that was refused: state", g.state(t, scoped), "issued")
}

func (g *guarded) otherRoute(t *testing.T) {
	first := g.do(t, "POST", "/payments", payment, "Idempotency-Key: everywhere")
	decode[api.Payment](t, first, 201)
	a := g.do(t, "POST", "/rich", payment, "Idempotency-Key: everywhere")
	a.wantStatus(t, 202)
	a.wantHeader(t, "Idempotent-Replayed", "")
	wantReplay(t, g.do(t, "POST", "/payments", payment, "Idempotency-Key: everywhere"), first)
	checkProblem(t, g.do(t, "POST", "/payments", `{"amount":1,"currency":"EUR","to":"a"}`, "Idempotency-Key: everywhere"), api.PayloadMismatch)
}

func (g *guarded) unknown(t *testing.T) {
	before := g.ledger(t).Total
	brief := g.issue(t, `{"ttl_ms":1000}`)
	for _, never := range []string{"never", "AAAAAAAAAAAAAAAAAAAAAA", brief + "x", brief[1:], strings.ToUpper(brief) + "-"} {
		wantSee(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+never), api.TokenUnknown, "")
	}
	expect.Eventually(t, "the token expires", func() bool { return g.do(t, "GET", "/token/"+brief, "").status == 410 })
	checkProblem(t, g.do(t, "GET", "/token/"+brief, ""), api.TokenUnknown)
	checkProblem(t, g.do(t, "POST", "/payments", payment, "Idempotency-Token: "+brief), api.TokenUnknown)
	checkProblem(t, g.do(t, "POST", "/token/"+brief+"/claim", `{"fingerprint":"f"}`), api.TokenUnknown)
	expect.Equal(t, "payments made with unknown tokens", g.ledger(t).Total-before, 0)
}

func (g *guarded) replay(t *testing.T) {
	token := g.issue(t, "")
	first := g.do(t, "POST", "/rich", "body", "Idempotency-Token: "+token)
	first.wantStatus(t, 202)
	first.wantHeader(t, "Set-Cookie", "session=secret")
	first.wantHeader(t, "X-Hop", "this connection's")
	expect.Equal(t, first.asked+": header X-Many", first.header.Values("X-Many"), []string{"one", "two"})
	status := must[api.TokenStatus](t, g.service, 200, "GET", "/token/"+token, "")
	expect.Equal(t, "the token: state", status.State, "completed")
	expect.Equal(t, "the token: attempts", status.Attempts, 1)
	expect.Equal(t, "the token: fence, which the handler had", strconv.FormatInt(status.Fence, 10), first.header.Get("X-Fence"))
	for range 3 {
		again := g.do(t, "POST", "/rich", "body", "Idempotency-Token: "+token)
		wantReplay(t, again, first)
		again.wantHeader(t, "Set-Cookie", "") // belongs to one client
		again.wantHeader(t, "X-Hop", "")      // belongs to one connection
	}
}

func (g *guarded) failure(t *testing.T) {
	first := g.do(t, "POST", "/error", "", "Idempotency-Key: error")
	checkProblem(t, first, api.InternalError)
	wantReplay(t, g.do(t, "POST", "/error", "", "Idempotency-Key: error"), first)
}

func (g *guarded) failedCheck(t *testing.T) {
	token := g.issue(t, "")
	for range 2 {
		checkProblem(t, g.do(t, "POST", "/payments", `{"amount":0}`, "Idempotency-Token: "+token), api.InvalidRequest)
		expect.MustEqual(t, "the token after a payment of 0: state", g.state(t, token), "issued")
	}
	paid := must[api.Payment](t, g.service, 201, "POST", "/payments", payment, "Idempotency-Token: "+token)
	expect.Equal(t, "POST /payments", paid, api.Payment{ID: paid.ID, Amount: 1299, Currency: "EUR", To: "acct_1", Fence: paid.Fence, ChargedAt: paid.ChargedAt})
	if paid.ID == "" || paid.Fence < 1 || paid.ChargedAt.IsZero() {
		t.Errorf("POST /payments: got %+v, want an id, a fence from 1 and a time", paid)
	}
	status := must[api.TokenStatus](t, g.service, 200, "GET", "/token/"+token, "")
	expect.Equal(t, "the token: attempts", status.Attempts, 3)
	expect.Equal(t, "the token: fence, which the payment has", status.Fence, paid.Fence)
}

func (g *guarded) manyAtOnce(t *testing.T) {
	before := g.ledger(t).Total
	answers := make([]answer, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			a, err := g.send(context.WithoutCancel(t.Context()), call{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Key: at-once"}})
			if err != nil {
				t.Errorf("payment %d of %d at once: %v", i, len(answers), err)
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
			checkProblem(t, a, api.InProgress)
		}
	}
	if len(made) != 1 || made[string(last.body)] == 0 {
		t.Errorf("%d at once: got the answers %v, want all of them to be that of the repeat, %s", len(answers), made, last.body)
	}
	last.wantHeader(t, "Idempotent-Replayed", "true")
	ledger := g.ledger(t)
	expect.Equal(t, "payments made", ledger.Total-before, 1)
	expect.Contains(t, "the answer, which has the id of the newest payment", string(last.body), fmt.Sprintf("%q", ledger.Payments[len(ledger.Payments)-1].ID))
}
