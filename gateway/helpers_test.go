package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	// servers that are away are what some of these tests are about
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	// net/http's transport says there what an upstream sends unasked
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// patience only ends a test that hangs.
const patience = 2 * time.Minute

// payments is the routes file of most tests. Nothing in it ends by itself while a test runs.
const payments = `routes: [{match: POST /payments, lease_ms: 3600000, max_wait_ms: 100000, upstream_timeout_ms: 100000}, {match: /, guard: false}]`

// willWait has a request wait for as long as that routes file allows.
const willWait = "Prefer: wait=100"

// rig is a gateway behind a listener, with a client of it.
type rig struct {
	t      testing.TB
	g      *Gateway
	store  *redisstore.Store
	url    string
	file   string
	client *http.Client
	log    *logtest.Text
}

// start starts a gateway that ends with the test.
func start(t testing.TB, upstream, routes string, set ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, log: &logtest.Text{}, client: newClient(t)}
	r.g = r.open(upstream, routes, set...)
	web := httptest.NewServer(r.g)
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	r.url = web.URL
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.g.end(errStopping)
		web.Close()
		r.close()
	})
	return r
}

// open makes a gateway that does not listen.
func (r *rig) open(upstream, routes string, set ...func(*Config)) *Gateway {
	r.t.Helper()
	r.file = filepath.Join(r.t.TempDir(), "routes.yaml")
	r.t.Cleanup(r.tellLog)
	r.write(routes)
	target, err := ParseUpstream(upstream)
	if err != nil {
		r.t.Fatalf("upstream %s: %v", upstream, err)
	}
	config := Config{Upstream: target, RoutesFile: r.file, Logger: r.log.Logger()}
	for _, set := range set {
		set(&config)
	}
	if config.Store == nil {
		config.Store = storetest.Open(r.t, redisstore.Config{URL: "embedded:"})
	}
	r.store = config.Store
	g, err := New(config)
	if err != nil {
		r.t.Fatalf("New with %s: %v", routes, err)
	}
	return g
}

// tellLog shows, for a test that has failed, the last lines of the gateway's log.
func (r *rig) tellLog() {
	if lines := strings.Split(r.log.String(), "\n"); r.t.Failed() && len(lines) > 1 {
		r.t.Logf("the gateway's log ends with\n%s", strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
}

func (r *rig) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // what still waits for a store that is away need not come to its end
	if err := r.g.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
		r.t.Errorf("closing the gateway: %v", err)
	}
}

// unconnected has a gateway whose upstream is never asked.
func unconnected(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, log: &logtest.Text{}}
	r.g = r.open("http://127.0.0.1:1", payments)
	t.Cleanup(r.close)
	return r
}

// admin asks the gateway's own side under a host, from an address.
func (r *rig) admin(path, host, from string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	request.Host, request.RemoteAddr = host, from
	w := httptest.NewRecorder()
	r.g.Admin().ServeHTTP(w, request)
	return w
}

func on(store *redisstore.Store) func(*Config) { return func(c *Config) { c.Store = store } }

// quiet drops the log, which would have a line for each of very many requests.
func quiet(c *Config) { c.Logger = slog.New(slog.DiscardHandler) }

func (r *rig) write(routes string) {
	r.t.Helper()
	whole := r.file + ".new"
	err := errors.Join(os.WriteFile(whole, []byte(routes), 0o600), os.Rename(whole, r.file))
	expect.Error(r.t, "writing the routes file", err, nil)
}

// newClient returns a client whose deadline only tells a hang, and that sends nothing again by
// itself.
func newClient(t testing.TB) *http.Client {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// answer is what came back.
type answer struct {
	asked   string // the request, such as "GET /x", with its headers
	status  int
	header  http.Header
	body    string
	trailer http.Header
}

func (a answer) problem() api.Problem {
	var problem api.Problem
	_ = json.Unmarshal([]byte(a.body), &problem) // an answer that is no problem has no code
	return problem
}

// chunked is the header of a request whose body has a length that no header says.
const chunked = "Transfer-Encoding: chunked"

// send sends a request with headers given as "Name: value".
func (r *rig) send(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	if slices.Contains(headers, chunked) {
		content = io.MultiReader(content) // of which net/http does not know the length
	}
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, content)
	if err != nil {
		return answer{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if strings.EqualFold(name, "Host") {
			request.Host = value
		}
		request.Header[name] = append(request.Header[name], value)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{describe(method, path, headers), response.StatusCode, response.Header, string(text), response.Trailer}, err
}

func describe(method, path string, headers []string) string {
	if len(headers) == 0 {
		return method + " " + path
	}
	return fmt.Sprintf("%s %s with %s", method, path, strings.Join(headers, ", "))
}

// do sends a request that must be answered, whatever the answer is.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	a, err := r.send(r.t.Context(), method, path, body, headers...)
	if err != nil {
		r.t.Fatalf("%s: no answer: %v", describe(method, path, headers), err)
	}
	return a
}

// pay sends the guarded request of most tests.
func (r *rig) pay(key string) answer {
	r.t.Helper()
	return r.do("POST", "/payments", `{"amount":1}`, "Idempotency-Key: "+key)
}

func (r *rig) wantCode(a answer, code api.Code) {
	r.t.Helper()
	kind, _ := api.Lookup(code)
	got := a.problem()
	if got.Code != code {
		r.t.Errorf("%s: got %d %.500q, want a problem of code %s", a.asked, a.status, a.body, code)
		return
	}
	id := a.header.Get("X-Request-Id")
	expect.Equal(r.t, a.asked+": X-Request-Id is there", id != "", true)
	want := got
	want.Retryable, want.Instance = kind.Retryable, "urn:request:"+id
	expect.Equal(r.t, a.asked+": problem", got, want)
	expect.Equal(r.t, a.asked+": status", a.status, kind.Status)
}

// wantStatus wants a status, and shows the body of an answer that has another.
func (r *rig) wantStatus(a answer, status int) {
	r.t.Helper()
	if a.status != status {
		r.t.Errorf("%s: got %d %.500q, want %d", a.asked, a.status, a.body, status)
	}
}

// said is an answer's status and body.
func (a answer) said() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// wantHeader wants one of an answer's headers to have a value; "" for none.
func (r *rig) wantHeader(a answer, name, value string) {
	r.t.Helper()
	expect.Equal(r.t, a.asked+": header "+name, a.header.Get(name), value)
}

// wantReplayed wants an answer to say whether it is a replay.
func (r *rig) wantReplayed(a answer, replayed bool) {
	r.t.Helper()
	r.wantHeader(a, "Idempotent-Replayed", map[bool]string{true: "true"}[replayed])
}

func (r *rig) wantPaid(a answer, body string, replayed bool) {
	r.t.Helper()
	expect.Equal(r.t, a.asked, a.said(), "201 "+body)
	r.wantReplayed(a, replayed)
}

// issue issues a token without a principal.
func (r *rig) issue() string {
	r.t.Helper()
	token, err := r.g.tokens.Issue(r.t.Context(), "", "", time.Hour)
	if err != nil {
		r.t.Fatalf("issuing a token: %v", err)
	}
	return token.Value
}

func (r *rig) wantState(token string, want idempotency.State) {
	r.t.Helper()
	status, err := r.g.tokens.Status(r.t.Context(), idempotency.IssuedToken("", token))
	if err != nil {
		r.t.Fatalf("asking for the token's state: %v", err)
	}
	expect.Equal(r.t, "state of the token", status.State, want)
}

// shop is an upstream that counts its payments.
type shop struct {
	*httptest.Server

	paid atomic.Int64
}

// newShop starts an upstream whose payments do what the test says; nil answers at once.
func newShop(t testing.TB, pay http.HandlerFunc) *shop {
	t.Helper()
	s := &shop{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.paid.Add(1)
		body, _ := io.ReadAll(r.Body) // only then does net/http notice that the gateway has hung up
		r.Body = io.NopCloser(bytes.NewReader(body))
		if pay != nil {
			pay(w, r)
			return
		}
		w.Header().Set("X-Fence", r.Header.Get("Idempotency-Fence"))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid "+string(rune('0'+n)))
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *shop) wantPaid(t testing.TB, times int64) {
	t.Helper()
	expect.Equal(t, "runs of the upstream", s.paid.Load(), times)
}

// dialogue is an upstream that speaks on the bare connection. It counts the requests that it has
// read whole.
type dialogue struct {
	url  string
	read atomic.Int64
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.MustEqual(t, "the error of listening", err, nil)
	return listener
}

// hear gives every connection to a new address to serve, and ends them all with the test.
func hear(t testing.TB, serve func(net.Conn)) (url string) {
	t.Helper()
	listener := listen(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			all.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

// wantRead wants that many requests to have been read whole.
func (d *dialogue) wantRead(t testing.TB, times int64) {
	t.Helper()
	expect.Equal(t, "requests that the upstream has read", d.read.Load(), times)
}

// converse starts an upstream whose every request is read whole and then given to the test, which
// answers on the connection. When the test says so, by returning false, the connection is closed.
func converse(t testing.TB, each func(n int64, request *http.Request, conn net.Conn) bool) *dialogue {
	t.Helper()
	d := &dialogue{}
	d.url = hear(t, func(conn net.Conn) { d.serve(conn, each) })
	return d
}

func (d *dialogue) serve(conn net.Conn, each func(int64, *http.Request, net.Conn) bool) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		if !each(d.read.Add(1), request, conn) {
			return
		}
	}
}
