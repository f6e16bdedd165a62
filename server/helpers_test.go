package server_test

import (
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
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestMain(m *testing.M) {
	// some tests write what no script of ours writes; see TestServiceNeedsNoMoreThanTheRights
	storetest.AllRights = true
	// servers that are away are what these tests are about
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// service is a server behind a listener, and a client of it.
type service struct {
	server *server.Server
	addr   string
	client *http.Client
	log    *logtest.Text
	dial   func(ctx context.Context, network, addr string) (net.Conn, error) // nil: by TCP
	// closed when Serve has; nil unless it is inside
	ended <-chan struct{}
}

// serve starts a service that ends with the test. Unless the test says otherwise it takes an
// unknown worker-id pool for a new one. Routes of the test's own are added before it listens.
func serve(t testing.TB, config server.Config, routes ...func(*server.Server)) *service {
	t.Helper()
	log := &logtest.Text{}
	config.Logger = log.Logger()
	if config.Workers.NewPools == "" {
		config.Workers.NewPools = workerlease.NewPoolsTrust
	}
	s := &service{server: server.New(config), log: log, client: newClient(t)}
	own := func(string) bool { return len(routes) > 0 }
	s.client.Transport = apitest.RoundTripper(t, s.client.Transport, own)
	for _, add := range routes {
		add(s.server)
	}
	web := httptest.NewUnstartedServer(s.server.Handler())
	web.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		// with megabytes, a client that reads nothing would be noticed late
		if state == http.StateNew {
			_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
		}
	}
	web.Start()
	s.addr = web.Listener.Addr().String()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		web.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what still waits for a store that is away need not come to its end
		if err := s.server.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the service: %v", err)
		}
	})
	return s
}

// patience ends a test that hangs.
const patience = 2 * time.Minute

// storePatience is the longest time that a store may be given for a call. Less is for stores that
// hang.
const storePatience = time.Minute

// newClient returns a client whose deadline only tells a hang.
func newClient(t testing.TB) *http.Client {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// call is a request as it goes over the wire: the path, with its query, is written as it stands
// here.
type call struct {
	method, path string
	header       []string // "Name: value"
	body         string
	chunked      bool // the body's length is not told ahead
}

// String is the call as failures show it.
func (c call) String() string {
	text := fmt.Sprintf("%s %s", c.method, shortened(c.path))
	if len(c.header) > 0 {
		text += fmt.Sprintf(" with %s", shortened(fmt.Sprintf("%q", c.header)))
	}
	if c.body != "" {
		text += fmt.Sprintf(" and body %s", shortened(c.body))
	}
	if c.chunked {
		text += " in chunks"
	}
	return text
}

// shortened is the beginning of a text that may be megabytes long.
func shortened(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
}

// answer is what came back, and what was asked.
type answer struct {
	asked  string
	status int
	header http.Header
	body   []byte
}

// String is the request and its answer as failures show them.
func (a answer) String() string {
	return fmt.Sprintf("%s: answered %d %v %s", a.asked, a.status, a.header, shortened(string(a.body)))
}

// wantStatus fails the test if the answer has another status, and goes on.
func (a answer) wantStatus(t testing.TB, want int) {
	t.Helper()
	if a.status != want {
		t.Errorf("%v; want status %d", a, want)
	}
}

// wantHeader fails the test if the header has another value, and goes on. The value "" stands for a
// header that is missing.
func (a answer) wantHeader(t testing.TB, name, want string) {
	t.Helper()
	expect.Equal(t, a.asked+": header "+name, a.header.Get(name), want)
}

// wantBody fails the test if the answer has another body, and goes on.
func (a answer) wantBody(t testing.TB, want string) {
	t.Helper()
	expect.Equal(t, a.asked+": body", string(a.body), want)
}

func (s *service) send(ctx context.Context, c call) (answer, error) {
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	if c.chunked {
		body = io.MultiReader(body) // net/http does not see its length
	}
	request, err := http.NewRequestWithContext(ctx, c.method, "http://"+s.addr, body)
	if err != nil {
		return answer{}, err
	}
	request.URL = &url.URL{Scheme: "http", Host: s.addr, Opaque: c.path}
	for _, header := range c.header {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	isJSON := strings.Contains(response.Header.Get("Content-Type"), "json")
	if other := otherTime(text); err == nil && isJSON && other != "" {
		err = fmt.Errorf("%v: the time %s has other than three digits of a second, or is not in UTC", c, other)
	}
	return answer{c.String(), response.StatusCode, response.Header, text}, err
}

var (
	anyTime  = regexp.MustCompile(`"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d[^"]*"`)
	wireTime = regexp.MustCompile(`^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$`)
)

// otherTime returns a time in JSON that is not as all answers have them, "" = none.
func otherTime(text []byte) string {
	for _, found := range anyTime.FindAll(text, -1) {
		if !wireTime.Match(found) {
			return string(found)
		}
	}
	return ""
}

// do sends a request that must be answered, whatever the answer is.
func (s *service) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	got, err := s.send(t.Context(), call{method: method, path: path, body: body, header: header})
	expect.NoError(t, method+" "+shortened(path), err)
	return got
}

// must sends a request that must succeed with this status, and decodes the answer.
func must[T any](t testing.TB, s *service, status int, method, path, body string, header ...string) T {
	t.Helper()
	return decode[T](t, s.do(t, method, path, body, header...), status)
}

func decode[T any](t testing.TB, a answer, status int) (message T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%v; want status %d", a, status)
	}
	if len(a.body) == 0 {
		return message
	}
	if err := strictly(a.body, &message); err != nil {
		t.Fatalf("%v; want a %T: %v", a, message, err)
	}
	return message
}

func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

type nothing struct{}

// connect opens a connection to the service.
func (s *service) connect(t testing.TB) net.Conn {
	t.Helper()
	dial := s.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(t.Context(), "tcp", s.addr)
	expect.NoError(t, "connecting to the service", err)
	t.Cleanup(func() { conn.Close() })
	expect.NoError(t, "setting the deadline of a connection", conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func (s *service) issue(t testing.TB, body string) string {
	t.Helper()
	return must[api.TokenIssued](t, s, 201, "POST", "/token", body).Token
}

func (s *service) claim(t testing.TB, token, body string, header ...string) api.Claimed {
	t.Helper()
	claimed := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", body, header...)
	if claimed.Outcome != "granted" {
		t.Fatalf("claiming token %s with %s: got %+v, want outcome granted", token, body, claimed)
	}
	return claimed
}

func (s *service) state(t testing.TB, token string) api.State {
	t.Helper()
	return must[api.TokenStatus](t, s, 200, "GET", "/token/"+token, "").State
}

func (s *service) ledger(t testing.TB) api.Ledger {
	t.Helper()
	return must[api.Ledger](t, s, 200, "GET", "/payments", "")
}
