package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/issuer"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// gatewayProcess is a running `coatcheck gateway`.
type gatewayProcess struct {
	*process

	banner gatewayStarted
	routes string // its file
}

// runGateway starts `coatcheck gateway` on free ports in this process. It ends with the test.
func runGateway(t *testing.T, upstream, routes string, args ...string) *gatewayProcess {
	t.Helper()
	g := newGateway(t)
	g.routes = file(t, routes)
	g.read(g.run(gatewayArgs(append([]string{"--upstream", upstream, "--routes", g.routes}, args...))))
	return g
}

// runGatewayProcess starts it as a process of its own, which can be killed and gets signals.
func runGatewayProcess(t *testing.T, upstream, routes string, args ...string) *gatewayProcess {
	t.Helper()
	at := file(t, routes)
	g := startGatewayProcess(t, append([]string{"--upstream", upstream, "--routes", at}, args...)...)
	g.routes = at
	return g
}

// startGatewayProcess starts such a process with these arguments.
func startGatewayProcess(t *testing.T, args ...string) *gatewayProcess {
	t.Helper()
	g := newGateway(t)
	g.read(g.fork(gatewayArgs(args)))
	return g
}

func newGateway(t *testing.T) *gatewayProcess {
	return &gatewayProcess{process: &process{t: t, stderr: &logtest.Text{}, forOthers: true}}
}

func gatewayArgs(more []string) []string {
	return onStore(nil, append([]string{"gateway", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, more...))
}

// read takes the gateway's banner.
func (g *gatewayProcess) read(stdout io.Reader) {
	g.t.Helper()
	g.process.read(stdout, &g.banner)
	g.process.banner = g.banner.started
}

// readiness asks the gateway's own side.
func (g *gatewayProcess) readiness() (ready gateway.Readiness, err error) {
	g.t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(g.banner.AdminURL + "/readyz")
	if err != nil {
		return ready, err
	}
	defer response.Body.Close()
	return ready, json.NewDecoder(response.Body).Decode(&ready)
}

// till is an upstream that counts what it was asked for, by the path's last part.
type till struct {
	*httptest.Server

	mu   sync.Mutex
	runs map[string]int
}

func newTill(t *testing.T, each http.HandlerFunc) *till {
	t.Helper()
	u := &till{runs: map[string]int{}}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// only then does net/http notice that the gateway is gone
		_, _ = io.Copy(io.Discard, r.Body)
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		u.mu.Lock()
		u.runs[name]++
		u.mu.Unlock()
		each(w, r)
	}))
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func (u *till) ran(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.runs[name]
}

const payRoutes = "routes:\n  - match: POST /pay/{name}\n    lease_ms: 500\n"

// patientRoutes are the same with a lease that does not end while a test runs.
const patientRoutes = "routes:\n  - match: POST /pay/{name}\n    lease_ms: 3600000\n"

func TestTwoGatewaysRunEachOperationOnce(t *testing.T) {
	t.Parallel()
	const operations, repeats, atOnce = 20, 50, 100
	upstream := newTill(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "paid with fence %s", r.Header.Get("Idempotency-Fence"))
	})
	redis := redistest.Start(t)
	gateways := []*gatewayProcess{
		runGateway(t, upstream.URL, patientRoutes, "--redis", redis.URL(), "--log-level", "warn", "--store-timeout", "10s"),
		runGateway(t, upstream.URL, patientRoutes, "--redis", redis.URL(), "--log-level", "warn", "--store-timeout", "10s"),
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
	defer client.CloseIdleConnections()
	pay := func(operation, repeat int) (string, error) {
		url := fmt.Sprintf("%s/pay/%d", gateways[repeat%2].banner.URL, operation)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(payment))
		if err != nil {
			return "", err
		}
		request.Header.Set("Idempotency-Key", fmt.Sprintf("operation-%d", operation))
		request.Header.Set("Prefer", "wait=30")
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprintf("%d %s", response.StatusCode, body), err
	}

	var mu sync.Mutex
	answers := make([]map[string]int, operations)
	var wg sync.WaitGroup
	work := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for i := range work {
				answer, err := pay(i/repeats, i%repeats)
				if err != nil {
					t.Errorf("repeat %d of operation %d: %v", i%repeats, i/repeats, err)
				}
				mu.Lock()
				if answers[i/repeats] == nil {
					answers[i/repeats] = map[string]int{}
				}
				answers[i/repeats][answer]++
				mu.Unlock()
			}
		})
	}
	for i := range operations * repeats { // the repeats of an operation are sent at once
		work <- i
	}
	close(work)
	wg.Wait()
	for i, got := range answers {
		for answer, times := range got {
			if times != repeats || !strings.HasPrefix(answer, "201 paid with fence 1") {
				t.Errorf("operation %d: got %d times %q, want %d times 201 and its fence", i, times, answer, repeats)
			}
		}
		expect.Equal(t, fmt.Sprintf("how often operation %d ran", i), upstream.ran(fmt.Sprint(i)), 1)
	}
}

// A gateway is killed in the middle of a request to the upstream: it cannot be known whether it had
// its effect, so nothing runs again.
func TestKilledGatewayLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	upstream := newTill(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	redis := redistest.Start(t)
	doomed := runGatewayProcess(t, upstream.URL, payRoutes, "--redis", redis.URL())
	other := runGateway(t, upstream.URL, payRoutes, "--redis", redis.URL())
	token := serve(t, "--redis", redis.URL()).issue()
	lost := make(chan error)
	go func() {
		_, err := doomed.try("POST", "/pay/a", payment, "Idempotency-Token: "+token)
		lost <- err
	}()
	<-begun
	a := other.do("POST", "/pay/a", payment, "Idempotency-Token: "+token)
	expect.Equal(t, "code of the same request while it runs", a.code(), api.InProgress)
	if a.header.Get("Retry-After") == "" {
		t.Errorf("the same request while it runs: got no Retry-After in %v", a.header)
	}
	doomed.kill()
	if err := <-lost; err == nil {
		t.Error("the client of a killed gateway got an answer")
	}
	eventually(t, "the outcome is unknown", func() bool {
		return other.do("POST", "/pay/a", payment, "Idempotency-Token: "+token).code() == api.IdempotencyUnknown
	})
	a = other.do("POST", "/pay/a", payment, "Idempotency-Token: "+token)
	expect.Contains(t, "the answer of unknown outcome", string(a.body), `"see":"/token/`+token)
	expect.Equal(t, "how often the upstream ran", upstream.ran("a"), 1)
}

func TestStoppedGatewayFinishesWhatItBegan(t *testing.T) {
	t.Parallel()
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		w.WriteHeader(http.StatusCreated)
	})
	redis := redistest.Start(t)
	stopping := runGateway(t, upstream.URL, payRoutes, "--redis", redis.URL(), "--drain-delay", "200ms")
	answered := make(chan answer)
	go func() { answered <- stopping.do("POST", "/pay/a", payment, "Idempotency-Key: a") }()
	<-begun
	ended := make(chan int)
	go func() { ended <- stopping.stop() }()
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(stopping.banner.URL, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	close(proceed)
	(<-answered).is(t, "the request that had begun before the stop", 201)
	if code := <-ended; code != done {
		t.Errorf("end of the gateway: got exit code %d, want %d; its log:\n%s", code, done, stopping.stderr)
	}
	other := runGateway(t, upstream.URL, payRoutes, "--redis", redis.URL())
	a := other.answers(201, "POST", "/pay/a", payment, "Idempotency-Key: a")
	expect.Equal(t, "Idempotent-Replayed of its repeat", a.header.Get("Idempotent-Replayed"), "true")
}

func TestGatewayReadsItsRoutesAgain(t *testing.T) {
	upstream := newTill(t, func(http.ResponseWriter, *http.Request) {})
	g := runGatewayProcess(t, upstream.URL, payRoutes)
	expect.Equal(t, "code of POST /orders without a route", g.do("POST", "/orders", "x").code(), api.RouteUnknown)
	change := func(routes string) {
		expect.NoError(t, "write the file", os.WriteFile(g.routes, []byte(routes), 0o600))
		g.signal(syscall.SIGHUP)
	}
	change("routes: [{match: POST /orders}]")
	eventually(t, "the new route guards", func() bool { return g.do("POST", "/orders", "x").code() == api.KeyMissing })
	change("routes: [{match: POST /orders, lease_ms: 1}]")
	eventually(t, "the fault is told", func() bool {
		ready, err := g.readiness()
		return err == nil && len(ready.RoutesFaults) == 1 && ready.Ready
	})
	expect.Equal(t, "code of POST /orders after routes with a fault", g.do("POST", "/orders", "x").code(), api.KeyMissing)
	g.endsWell()
}

func TestPrincipalIsTheCredential(t *testing.T) {
	upstream := newTill(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Authorization")) })
	g := runGateway(t, upstream.URL, payRoutes, "--log-level", "debug")
	for range 2 {
		for _, who := range []string{"Bearer alice", "Bearer bob"} {
			a := g.answers(200, "POST", "/pay/a", payment, "Idempotency-Key: one", "Authorization: "+who)
			expect.Equal(t, "the answer to "+who, string(a.body), who)
		}
	}
	expect.Equal(t, "how often the upstream ran for two principals with one key", upstream.ran("a"), 2)
	g.endsWell() // its log is whole then
	lacks(t, "the log", g.stderr.String(), "alice", "one\"", "/pay/a")
}

// A gateway and a service with the same settings know the same callers, who are the same with a
// renewed token.
func TestCallersByTheirVerifiedTokens(t *testing.T) {
	t.Parallel()
	is, redis := issuer.New(t), redistest.Start(t)
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") })
	settings := []string{"--redis", redis.URL(), "--principal-jwt-jwks", is.URL, "--principal-jwt-issuer", "https://id.example/", "--principal-jwt-algorithms", "ES256, EdDSA"}
	g, s := runGateway(t, upstream.URL, payRoutes, settings...), serve(t, settings...)
	const says = "by iss and sub of the verified bearer token, with the keys of "
	own := runGateway(t, "http://127.0.0.1:1", `routes: [{match: POST /payments, principal: {jwt: {jwks: "`+is.URL+`"}}}]`)
	expect.Equal(t, "the principal in the banner of a gateway whose routes have their own", own.banner.Principal, "of each route, as below")
	expect.Equal(t, "the principal in the gateway's banner", g.banner.Principal, says+is.URL)
	expect.Equal(t, "the principal in the service's banner", s.banner.Principal, says+is.URL)
	expect.Contains(t, "the gateway's banner for people", g.banner.people(gateway.Routes{List: []gateway.Route{{}}}), "callers     "+says+is.URL)

	var token api.TokenIssued
	s.do("POST", "/token", "", "Authorization: Bearer "+is.Token("ann")).into(t, &token)
	for range 2 {
		for _, header := range []string{"Idempotency-Token: " + token.Token, "Idempotency-Key: one"} {
			g.answers(200, "POST", "/pay/a", payment, header, "Authorization: Bearer "+is.Token("ann"))
		}
	}
	expect.Equal(t, "how often the upstream ran for a token and a key, each twice", upstream.ran("a"), 2)
	a := g.answers(401, "POST", "/pay/a", payment, "Idempotency-Key: one", "Authorization: Bearer "+issuer.New(t).Token("ann"))
	expect.Equal(t, "code of a forged token", a.code(), api.Unauthorized)
	g.endsWell()
	lacks(t, "the log", g.stderr.String(), ".eyJ")
}

func TestGatewayUsage(t *testing.T) {
	good, bad := file(t, payRoutes), file(t, "routes: [{match: POST, lease_ms: 1}]")
	for name, row := range map[string]struct {
		args []string
		env  map[string]string
		code int
		says []string
	}{
		"nothing":             {nil, nil, usage, []string{"upstream: missing", "routes: missing"}},
		"all faults together": {[]string{"--listen", "x", "--upstream", "ftp://h", "--routes", bad, "--token-keys", "a:hunter2"}, nil, usage, []string{"listen", "upstream (--upstream): http://", "lease_ms", "token-keys"}},
		"routes not there":    {[]string{"--upstream", "http://h", "--routes", good + "x"}, nil, usage, []string{"no such file"}},
		"ack without replicas": {
			[]string{"--upstream", "http://h", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--routes", file(t, "routes: [{match: /a, ack: 1}]")}, nil, usage,
			[]string{"no replicas"},
		},
		"its own address":   {[]string{"--check", "--listen", "127.0.0.1:8081", "--upstream", "http://localhost:8081/x", "--routes", good}, nil, usage, []string{"upstream: localhost:8081 is where clients come in", "--listen"}},
		"all addresses":     {[]string{"--check", "--listen", ":8081", "--upstream", "http://127.0.0.1:8081", "--routes", good}, nil, usage, []string{"upstream: 127.0.0.1:8081"}},
		"another host":      {[]string{"--check", "--listen", "127.0.0.1:8081", "--upstream", "http://127.0.0.2:8081", "--routes", good}, nil, done, []string{"in order"}},
		"token service":     {[]string{"--upstream", "http://h", "--routes", good, "--token-service", "tokens"}, nil, usage, []string{"token-service"}},
		"header":            {[]string{"--upstream", "http://h", "--routes", good, "--principal-headers", "a b"}, nil, usage, []string{"principal-headers"}},
		"no keys of tokens": {[]string{"--check", "--routes", good, "--principal-jwt-jwks", good + "x"}, nil, usage, []string{"principal-jwt-jwks: ", "no such file"}},
		"tokens, two ways":  {[]string{"--check", "--routes", good, "--principal-jwt-jwks", "https://h/x", "--principal-headers", "X-User"}, nil, usage, []string{"principal-headers: not with principal-jwt-jwks"}},
		"tokens of nowhere": {[]string{"--check", "--routes", good, "--principal-jwt-issuer", "https://h"}, nil, usage, []string{"principal-jwt-jwks: missing"}},
		"a shared secret":   {[]string{"--check", "--routes", good, "--principal-jwt-jwks", "https://h/x", "--principal-jwt-algorithms", "RS256,HS256"}, nil, usage, []string{`"HS256" is not one of`}},
		"a URL of no kind":  {[]string{"--check", "--routes", good, "--principal-jwt-jwks", "ftp://h/x"}, nil, usage, []string{"principal-jwt-jwks: not a URL"}},
		"how a route ends": {
			[]string{"--check", "--routes", file(t, `routes: [{match: POST /a, frees: [429], resolve: "PUT /ops/{operation}"}, {match: POST /b, doubts: []}, {match: POST /c, keep: [503]}, {match: POST /d}]`)},
			nil, done, []string{"ENDS", "429 free the key; asks PUT /ops/{operation}", "no status in doubt", "keeps 503\n", "as usual\n"},
		},
		"tokens of a route":  {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a, principal: {jwt: {jwks: https://h/x}}}, {match: POST /b}]")}, nil, done, []string{"CALLERS", "with the keys of https://h/x", "as for all"}},
		"a route's no keys":  {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a, principal: {jwt: {jwks: /nowhere}}}]")}, nil, usage, []string{"line 1: principal: jwt: ", "no such file"}},
		"argument":           {[]string{"extra"}, nil, usage, []string{"unexpected argument"}},
		"check":              {[]string{"--check", "--routes", good}, nil, done, []string{"in order", "POST /pay/{name}", "either", "hold"}},
		"unmatched requests": {[]string{"--check", "--routes", file(t, "{unmatched: pass, routes: [{match: [POST /a, POST /a/]}, {match: POST /b, guard: false}]}")}, nil, done, []string{"POST /a, POST /a/", "POST /b", "unguarded", "WARNING: every other request passes (unmatched: pass)"}},
		"wide and unguarded": {[]string{"--check", "--routes", file(t, "routes: [{match: [POST /b, 'POST /{x...}'], guard: false}]")}, nil, done, []string{"Unguarded (guard: false), with a key as well: 2. WARNING: of these 1 match more than one path: POST /{x...}."}},
		"nothing is named":   {[]string{"--check", "--routes", file(t, "unmatched: pass")}, nil, done, []string{"WARNING: no route is named", "only those with a key are guarded"}},
		"remarks":            {[]string{"--check", "--routes", file(t, "routes: [{match: /a, key_header: a+b}]")}, nil, done, []string{`Remark: line 1: match: "/a" has no method`, `Remark: line 1: key_header: "a+b" is the name of one header`}},
		"remarks as JSON":    {[]string{"--check", "--json", "--routes", file(t, "routes: [{match: /a}, {match: /b/, guard: false}]")}, nil, done, []string{`"unguarded_routes":1,"unguarded_wide":["/b/"],"remarks":["line 1: match: `}},
		"two hosts, allowed": {[]string{"--check", "--allowed-hosts", "a.example,b.example", "--routes", file(t, "routes: [{match: POST a.example/a}, {match: POST b.example/a}]")}, nil, usage, []string{"line 1: match: ", "without --preserve-host"}},
		"a host":             {[]string{"--check", "--routes", file(t, "routes: [{match: POST shop.example/a}]")}, nil, usage, []string{"line 1: match: ", "--preserve-host", "--allowed-hosts"}},
		"a host, preserved":  {[]string{"--check", "--preserve-host", "--routes", file(t, "routes: [{match: POST shop.example/a}]")}, nil, done, []string{"in order", "Every other request is refused"}},
		"callers of routes":  {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a, principal: none}, {match: POST /b, principal: {cookie: sid}}, {match: POST /c, principal: {ask: {url: http://h/who, header: X-User}}}]")}, nil, done, []string{"all are the same", "by cookie sid", "by X-User of http://h/who"}},
		"check by env":       {[]string{"--check"}, map[string]string{"COATCHECK_ROUTES": good}, done, []string{"in order"}},
		"check as JSON":      {[]string{"--check", "--json", "--routes", good}, nil, done, []string{`{"routes":[{"match":["POST /pay/{name}"],"guard":true,"accept":"either","policy":"hold","doubts":["408","502","503","504"]}],"unmatched":"refuse","unguarded_routes":0}`}},
		"keys of senders": {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a, key_header: [webhook-id, X-B]}, {match: POST /b, key_from_body: /id}, {match: POST /c}, {match: POST /d, accept: token}]")}, nil, done,
			[]string{"KEY", "webhook-id, X-B", "body /id", "Idempotency-Key", "Idempotency-Token"}},
		"keys as JSON":     {[]string{"--check", "--json", "--routes", file(t, "routes: [{match: POST /a, key_header: X-B, key_from_body: /id}]")}, nil, done, []string{`"key_header":["X-B"],"key_from_body":["/id"]`}},
		"a key of nowhere": {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a, key_from_body: event.id}]")}, nil, usage, []string{"line 1: key from body", `did you mean "/event/id"?`}},
		"what Go refuses":  {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a}, {match: 'POST /b/{id}/{id}'}]")}, nil, usage, []string{`line 1: match: "POST /b/{id}/{id}": parsing`, `duplicate wildcard name "id"`}},
		"a look-alike":     {[]string{"--check", "--routes", file(t, "routes: [{match: POST /a\u2215b}]")}, nil, usage, []string{"stands in no path"}},
		"two alike":        {[]string{"--check", "--routes", file(t, "routes:\n  - match: POST /a/{x}\n  - match: POST /a/{y}\n")}, nil, usage, []string{`line 3: match: pattern "POST /a/{y}" conflicts with pattern "POST /a/{x}"`}},
		"check with fault": {[]string{"--check", "--routes", bad}, nil, usage, []string{bad + ": line 1: lease_ms"}},
		"help":             {[]string{"--help"}, nil, done, []string{"--upstream", "--principal-headers", "--answer-keys", "--redis"}},
	} {
		t.Run(name, func(t *testing.T) {
			ran := execute(t, row.env, append([]string{"gateway"}, row.args...)...).exits(row.code).conceals("hunter2")
			expect.Contains(t, ran.line, ran.stdout+ran.stderr, row.says...)
		})
	}
}

func TestGatewayBanner(t *testing.T) {
	g := runGateway(t, "https://payments.internal/base", "routes:\n  - match: POST /pay/{name}\n    accept: token\n  - match: /refunds\n    policy: takeover\n")
	b := g.banner
	if b.Store != "embedded" || b.Upstream != "https://payments.internal/base" || b.AdminURL == "" || len(b.Routes) != 2 || b.Routes[1].Policy != "takeover" {
		t.Errorf("the banner: got %+v, want the embedded store, the upstream, an admin URL and two routes, of which the second takes over", b)
	}
	routes, err := gateway.ParseRoutes([]byte("routes:\n  - match: POST /pay/{name}\n    accept: token\n  - match: example.com/refunds\n"))
	expect.NoError(t, "parse the routes", err)
	expect.Contains(t, "the banner for people", b.people(routes), b.URL, b.AdminURL, b.Upstream, "WARNING", "POST /pay/{name}", "Idempotency-Token", "/idempotency-policy")
	expect.Contains(t, "what the banner says to try", try(b.URL, routes.List[1]), b.URL+"/refunds'", `-H "Host: example.com" -H "Idempotency-Key`)
	expect.Contains(t, "what the banner says to try", try(b.URL, gateway.Route{Route: idempotency.Route{Name: "POST /orders/{$}"}}), b.URL+"/orders/'")
	expect.Contains(t, "what the banner says to try", try(b.URL, gateway.Route{Route: idempotency.Route{Name: "POST /hooks", KeyHeaders: []string{"webhook-id"}}}), `-H "webhook-id: order-1"`)
	ready, err := g.readiness()
	if err != nil || !ready.Ready {
		t.Errorf("readiness: got %+v, %v, want ready", ready, err)
	}
	admin := map[string]string{"COATCHECK_LISTEN": strings.TrimPrefix(b.AdminURL, "http://")}
	execute(t, admin, "healthcheck").exits(done)
}

// The gateway in this process: it ends with its context, and leaves nothing behind.
func TestGatewayRunsUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stderr logtest.Text
	stdout, banner := io.Pipe()
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--routes", file(t, payRoutes), "--redis", "embedded:"},
			func(string) string { return "" }, banner, &stderr)
	}()
	reader := bufio.NewReader(stdout)
	for line := ""; !strings.Contains(line, "What clients may read"); {
		var err error
		if line, err = reader.ReadString('\n'); err != nil {
			t.Fatalf("read a line: %v", err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	cancel()
	if got := <-code; got != done {
		t.Errorf("gateway whose context has ended: got exit code %d, want %d; its log:\n%s", got, done, &stderr)
	}
	_ = banner.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen on a free port", err)
	defer listener.Close()
	for _, flag := range []string{"--listen", "--admin-listen"} {
		args := []string{"gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", "http://h", "--routes", file(t, payRoutes), flag, listener.Addr().String()}
		execute(t, nil, args...).exits(failed, flag)
	}
}
