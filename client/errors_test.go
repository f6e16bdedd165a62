package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// told maps the problems of the token endpoints to errors.
var told = map[api.Code]error{
	"invalid-request":              client.ErrInvalid,
	"invalid-name":                 client.ErrInvalid,
	"unauthorized":                 client.ErrRefused,
	"forbidden":                    client.ErrRefused,
	"not-found":                    client.ErrNotFound,
	"method-not-allowed":           client.ErrRefused,
	"idempotency-in-progress":      client.ErrInProgress,
	"idempotency-outcome-unknown":  client.ErrInDoubt,
	"idempotency-superseded":       client.ErrSuperseded,
	"idempotency-payload-mismatch": client.ErrMismatch,
	"idempotency-token-unknown":    client.ErrUnknownToken,
	"operation-unknown":            client.ErrUnknownOperation,
	"payload-too-large":            client.ErrTooLarge,
	"unsupported-encoding":         client.ErrInvalid,
	"too-many-requests":            client.ErrUnavailable,
	"overloaded":                   client.ErrUnavailable,
	"store-unavailable":            client.ErrUnavailable,
	"store-newer":                  client.ErrNewer,
	"outcome-unknown":              client.ErrUnknownOutcome,
	"internal-error":               client.ErrUnknownOutcome,
}

// statuses are those of problems that the catalogue does not hold yet.
var statuses = map[api.Code]int{"unauthorized": 401, "forbidden": 403, "too-many-requests": 429}

// byStatus are those that are known by their status alone.
var byStatus = []api.Code{"unauthorized", "forbidden", "method-not-allowed", "too-many-requests"}

// toldOfWorkers is what each problem of the worker-id endpoints is that no other has.
var toldOfWorkers = map[api.Code]error{
	"layout-mismatch":  client.ErrOtherPool,
	"lease-lost":       client.ErrLost,
	"pool-exhausted":   client.ErrExhausted,
	"pool-quarantined": client.ErrQuarantined,
	"pool-exists":      client.ErrPoolExists,
	"layout-used-up":   client.ErrLayoutUsedUp,
}

// toldOfCounters is what each problem of the counter endpoints is that no other has.
var toldOfCounters = map[api.Code]error{
	"not-an-integer":            client.ErrNotAnInteger,
	"counter-overflow":          client.ErrOverflow,
	"counter-behind":            client.ErrBehind,
	"counter-permanent":         client.ErrPermanent,
	"counter-back":              client.ErrPast,
	"idempotency-key-malformed": client.ErrInvalid,
}

// allTold is what each problem is that the service can answer.
func allTold() map[api.Code]error {
	all := map[api.Code]error{}
	for _, some := range []map[api.Code]error{told, toldOfWorkers, toldOfCounters, toldOfLocks} {
		maps.Copy(all, some)
	}
	return all
}

// facts is an error without its text, to be compared by what it holds.
type facts client.Error

func problem(code api.Code) api.Problem {
	p := api.NewProblem(code, "")
	if p.Code != code {
		p = api.Problem{Type: "/problems/" + string(code), Title: "A title", Status: statuses[code], Detail: "A detail.", Code: code}
	}
	return p
}

func TestEveryCodeIsReported(t *testing.T) {
	for code, want := range allTold() {
		t.Run(string(code), func(t *testing.T) {
			p := problem(code)
			p.RetryAfter, p.Retryable, p.See = 1500*time.Millisecond, true, "/token/secret-token"
			c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Request-Id", "request-1")
				p.Write(w)
			})))
			_, err := c.Claim(t.Context(), "secret-token", client.ClaimOptions{})
			failure := wantError(t, err, want)
			expect.Equal(t, "the error of "+string(code), facts(*failure), facts{
				Op: "claim token", Code: string(code), Status: p.Status, Title: p.Title, Detail: p.Detail, RequestID: "request-1",
				Wait: 2 * time.Second, Retryable: true, See: "/token/…",
			}, cmpopts.IgnoreUnexported(facts{}))
			expect.Contains(t, "the error's text", err.Error(), "claim token", string(code), "request-1")
			without(t, "the error's text", err.Error(), "secret")
		})
	}
}

// A code that is added to the catalogue later is of one class, too.
func TestEveryCodeOfTheCatalogueIsOfOneClass(t *testing.T) {
	for _, code := range api.Codes() {
		err := ask(t, problem(code).Write)
		wantError(t, err, err, "code", code)
		if problem(code).Status < 500 && errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%s with status %d: got %v, want another class: nothing was done", code, problem(code).Status, err)
		}
	}
}

// ask claims a token of a service that answers as the handler does.
func ask(t *testing.T, answer func(http.ResponseWriter)) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, _ := through(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		_, err = c.Claim(t.Context(), "a-token", client.ClaimOptions{Fingerprint: "f"})
	})
	return err
}

func TestCodesCanBeComparedWithoutAnAnswer(t *testing.T) {
	for code, want := range allTold() {
		err := error(&client.Error{Code: string(code)})
		if !slices.Contains(byStatus, code) && !errors.Is(err, want) {
			t.Errorf("the error of code %s: got %v, want %v", code, err, want)
		}
	}
	err := error(&client.Error{})
	expect.Error(t, "an error without facts", err, client.ErrUnknownOutcome)
	if errors.Is(err, context.Canceled) {
		t.Errorf("an error without facts: %v is %v as well", err, context.Canceled)
	}
}

// The status of a proxy is no proof: it may have passed the request on.
func TestAnswersThatAreNotTheServices(t *testing.T) {
	const page = "<html><body>Bad gateway\x1b[31m"
	for _, row := range []struct {
		status      int
		media, body string
		want        error
	}{
		{502, "text/html", page, client.ErrUnknownOutcome},
		{503, "text/html", page, client.ErrUnknownOutcome},
		{504, "", "", client.ErrUnknownOutcome},
		{500, "application/json", `{"code":"store-unavailable"}`, client.ErrUnknownOutcome},
		{503, "application/problem+json", `{"code":"store-unavailable"`, client.ErrUnknownOutcome},
		{503, "application/problem+json", `{"code":"store unavailable"}`, client.ErrUnknownOutcome},
		{503, "application/problem+json", `{"title":"of another service"}`, client.ErrUnknownOutcome},
		{503, "application/problem+json", `[]`, client.ErrUnknownOutcome},
		{503, "application/problem+json; charset=utf-8", `{"code":"store-unavailable","status":"odd"}`, client.ErrUnknownOutcome},
		{503, "application/problem+json; charset=utf-8", `{"code":"store-unavailable","newer":{"field":[1]}}`, client.ErrUnavailable},
		{401, "text/html", page, client.ErrUnknownOutcome},
		{403, "text/html", page, client.ErrUnknownOutcome},
		{404, "text/plain", "404 page not found", client.ErrUnknownOutcome},
		{408, "text/html", page, client.ErrUnknownOutcome},
		{409, "text/plain", "conflict", client.ErrUnknownOutcome},
		{413, "text/html", page, client.ErrTooLarge},
		{429, "text/html", page, client.ErrUnknownOutcome},
		{200, "text/html", page, client.ErrUnknownOutcome},
		{200, "application/json", ``, client.ErrUnknownOutcome},
		{200, "application/json", `null`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"granted"}`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"granted","lease":"a b","fence":1}`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"granted","lease":"lease","fence":0}`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"granted","lease":"lease","fence":"1"}`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"replay"}`, client.ErrUnknownOutcome},
		{200, "application/json", `{"outcome":"other","lease":"lease","fence":1}`, client.ErrUnknownOutcome},
		{201, "application/json", `{"outcome":"granted","lease":"lease","fence":1}`, client.ErrUnknownOutcome},
		{204, "", ``, client.ErrUnknownOutcome},
		{200, "application/problem+json", `{"code":"idempotency-token-unknown"}`, client.ErrUnknownOutcome},
		{302, "application/problem+json", `{"code":"idempotency-token-unknown"}`, client.ErrUnknownOutcome},
	} {
		err := ask(t, func(w http.ResponseWriter) { says(row.status, row.media, row.body)(w, nil, nil) })
		failure := wantError(t, err, row.want, "status", row.status, "body", row.body)
		asked := fmt.Sprintf("an answer %d %s", row.status, row.body)
		expect.Equal(t, asked+": whether it has a code", failure.Code != "", strings.Contains(row.body, "newer"))
		expect.Equal(t, asked+": the status", failure.Status, row.status)
		without(t, asked+": the error's text", err.Error(), "\x1b", "\n", "<")
	}
}

// An answer of another server is no heartbeat: under takeover another attempt may run when the
// lease has ended.
func TestAnExtensionWithoutALeaseIsAnUnknownOutcome(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":"ok"}`, `{"lease_until":null}`} {
		_, err := answering(t, 200, body).Extend(t.Context(), "a-token", "a-lease", 0)
		wantError(t, err, client.ErrUnknownOutcome, "body", body)
	}
}

func TestAnAnswerOfAnyLengthIsReadWithTheLargestBound(t *testing.T) {
	c := faced(t, says(200, "application/json", `{"state":"issued"}`), func(config *client.Config) { config.MaxAnswer = math.MaxInt64 })
	status, err := c.Status(t.Context(), "a-token")
	succeeds(t, "Status", err)
	expect.Equal(t, "the state", status.State, api.StateIssued)
}

// A read changes nothing: without an answer it was just not served.
func TestAReadThatFailsIsNeverAnUnknownOutcome(t *testing.T) {
	for name, answer := range map[string]fault{
		"proxy":     says(502, "text/html", "bad gateway"),
		"unknown":   says(503, "application/problem+json", `{"code":"outcome-unknown"}`),
		"internal":  says(500, "application/problem+json", `{"code":"internal-error"}`),
		"nonsense":  says(200, "application/json", `{`),
		"no state":  says(200, "application/json", `{}`),
		"redirect":  says(302, "", ""),
		"no answer": hangUp,
	} {
		_, err := faced(t, answer).Status(t.Context(), "a-token")
		expect.Error(t, "Status, answered by "+name, err, client.ErrUnavailable)
		wantError(t, err, client.ErrRefused)
	}
}

func TestATokenThatCannotBeOneWasNotIssued(t *testing.T) {
	for _, body := range []string{`{}`, `{"token":"a/b"}`, `{"token":""}`, `{"token":1}`} {
		c := answering(t, 201, body)
		_, err := c.Issue(t.Context(), "", 0)
		wantError(t, err, client.ErrUnknownOutcome, "body", body)
	}
}

func TestFieldsThatAreNotKnownAreTolerated(t *testing.T) {
	const grant = `{"outcome":"granted","lease":"lease","fence":7,"attempt":1,"lease_until":"2026-11-20T15:35:46.279Z","newer":{"than":["this","client"]}}`
	c := answering(t, 200, grant)
	outcome, err := c.Claim(t.Context(), "a-token", client.ClaimOptions{})
	succeeds(t, "Claim, answered with a new field", err)
	expect.Equal(t, "Claim, answered with a new field", outcome.Grant.Fence, 7)
	expect.Equal(t, "Claim, answered with a new field", outcome.Grant.Lease, "lease")
}

func TestAnAnswerThatIsTooLongIsNotRead(t *testing.T) {
	endless := func(status int) fault {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.WriteHeader(status)
			var err error
			for err == nil { // until the client has had enough
				_, err = io.WriteString(w, strings.Repeat("x", 4096))
			}
			return true
		}
	}
	for status, want := range map[int]error{200: client.ErrUnknownOutcome, 502: client.ErrUnknownOutcome, 404: client.ErrUnknownOutcome} {
		c := faced(t, endless(status), func(config *client.Config) { config.MaxAnswer = 10_000 })
		_, err := c.Claim(t.Context(), "a-token", client.ClaimOptions{})
		expect.Equal(t, "Claim, answered without end", wantError(t, err, want, "status", status).Status, status)
		expect.Contains(t, "Claim, answered without end", err.Error(), "longer than")
	}
	c := answering(t, 200, `{"outcome":"replay","response":{"status":200,"body_base64":"`+strings.Repeat("AAAA", 5000)+`"}}`)
	outcome, err := c.Claim(t.Context(), "a-token", client.ClaimOptions{})
	succeeds(t, "Claim, answered with 15,000 bytes", err)
	expect.Equal(t, "bytes of the answer", len(outcome.Answer.Body), 15_000)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed to %s with %v", r.URL, r.Header)
	})
	other := listen(t, elsewhere)
	for _, status := range []int{301, 302, 303, 307, 308} {
		c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+r.URL.Path, status)
		})), func(config *client.Config) { config.HTTPClient = &http.Client{Transport: transport(t)} })
		_, err := c.Issue(t.Context(), "", 0)
		failure := wantError(t, err, client.ErrUnknownOutcome, "status", status)
		expect.Equal(t, "Issue, redirected", failure.Status, status)
		expect.Contains(t, "Issue, redirected", failure.Detail, other)
		wantError(t, c.Complete(t.Context(), "secret-token", "secret-lease", client.Answer{}), client.ErrUnknownOutcome, "status", status)
		_, err = c.Status(t.Context(), "secret-token")
		wantError(t, err, client.ErrUnavailable, "status", status)
		without(t, "Status, redirected", err.Error(), "secret")
	}
}

func TestAClientClosesItsOwnConnectionsOnly(t *testing.T) {
	var connections atomic.Int64
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(404, "", "")(w, nil, nil) }))
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	web.Start()
	defer web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	c := connect(t, web.URL)
	for range 2 {
		response, err := http.Get(web.URL)
		must(t, "GET / by the default client", err)
		response.Body.Close()
		c.CloseIdleConnections()
	}
	expect.Equal(t, "connections of the default client, while another is closed", connections.Load(), 1)
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, url := range []string{"", "localhost:8080", "ftp://localhost", "http://", "http://h/?a=b", "http://h/#a", "http://user:password@h:port", "http:// h"} {
		_, err := client.New(client.Config{URL: url})
		if err == nil {
			t.Errorf("New with URL %q: got no error", url)
			continue
		}
		without(t, "New", err.Error(), "password")
	}
	for _, config := range []client.Config{{URL: "http://h", Timeout: -1}, {URL: "http://h", MaxAnswer: -1}} {
		if _, err := client.New(config); err == nil {
			t.Errorf("New with %+v: got no error", config)
		}
	}
	s := embedded(t)
	prefixed := listen(t, http.StripPrefix("/coat/check", s.proxy.service))
	c := connect(t, prefixed+"/coat/check/")
	expect.Equal(t, "the state of a token issued under a base path", state(t, c, issue(t, c)), api.StateIssued)
}

// A text that is no name, key or lease would be another path, so nothing is sent for it.
func TestWhatIsNoNameIsNotSent(t *testing.T) {
	c := connect(t, listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent, want no request", r.Method, r.URL)
	})))
	ctx := t.Context()
	for _, name := range []string{"", ".", "..", "a/b", "a b", "a?force=1", "a%2Fb", "a\x00", "ä", "a:{yyyy}", strings.Repeat("a", 201)} {
		errs := map[string]error{
			"SetCounter": c.SetCounter(ctx, name, 1, client.SetCounterOptions{}), "RemoveCounter": c.RemoveCounter(ctx, name), "ResetLimit": c.ResetLimit(ctx, name),
		}
		_, errs["Incr"] = c.Incr(ctx, name)
		_, errs["Counter"] = c.Counter(ctx, name)
		_, errs["SegmentIDs"] = c.SegmentIDs(ctx, name, 1)
		_, errs["TakeLimit"] = c.TakeLimit(ctx, name, hourly, 1)
		_, errs["TryAcquireLock"] = c.TryAcquireLock(ctx, name, client.LockRequest{})
		_, errs["Lock"] = c.Lock(ctx, name)
		_, errs["BreakLock"] = c.BreakLock(ctx, name, 1)
		_, errs["CreatePool"] = c.CreatePool(ctx, name, client.PoolShape{})
		_, errs["Ring"] = c.Ring(ctx, name, 0, 1)
		for verb, write := range workerWrites(c, client.WorkerLease{Pool: name, Token: "a-lease"}) {
			errs[verb] = write(ctx)
		}
		if name != "" { // the default pool
			_, errs["SnowflakeIDs"] = c.SnowflakeIDs(ctx, name, 1)
		}
		for what, err := range errs {
			wantError(t, err, client.ErrInvalid, what, name)
		}
	}
	for _, lease := range []client.WorkerLease{{}, {Pool: "orders"}, {Pool: "orders", Token: "a b"}, {Pool: "orders", Token: "a-lease", WorkerID: -1}} {
		_, err := c.RenewWorker(ctx, lease)
		wantError(t, err, client.ErrInvalid, "lease", lease)
		wantError(t, c.ReleaseWorker(ctx, lease, time.Time{}), client.ErrInvalid, "lease", lease)
	}
	for _, request := range []client.CounterRequest{
		{By: -1}, {RequestID: "a\nb"}, {RequestID: "ä"}, {RequestID: strings.Repeat("x", 256)}, {By: -1, Repeat: true},
	} {
		_, err := c.Add(ctx, "orders", request)
		wantError(t, err, client.ErrInvalid, "request", request)
	}
	_, err := c.IncrBy(ctx, "orders", 0)
	wantError(t, err, client.ErrInvalid)
}
