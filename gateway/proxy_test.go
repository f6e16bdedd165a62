package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A client that offers HTTP/2 on a plain connection could talk to the upstream past every guard if
// the offer was passed on.
func TestOfferOfHTTP2IsNotPassedOn(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("HTTP2-Settings"))
	})
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/other", "/payments"} {
		a := r.do("POST", path, "x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Http2-Settings: AAMAAABkAAQAAP__", "Idempotency-Key: a")
		expect.Equal(t, a.asked, a.said(), `200 "" "" ""`)
	}
}

func TestServerSentEventsArriveAtOnce(t *testing.T) {
	next := make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	r := start(t, upstream.URL, payments)
	response, err := r.client.Get(r.url + "/events")
	expect.MustEqual(t, "the error of the request", err, nil)
	defer response.Body.Close()
	reader := bufio.NewReader(response.Body)
	for i := range 3 {
		line, err := reader.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			t.Fatalf("event %d: got %q and error %v, want %q", i, line, err, want)
		}
		_, _ = reader.ReadString('\n')
		next <- struct{}{} // only now does the upstream send the next one
	}
}

func TestUnguardedUploadIsStreamed(t *testing.T) {
	const size = 32 << 20
	first := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		one := make([]byte, 1)
		_, _ = io.ReadFull(r.Body, one)
		close(first)
		_, _ = sum.Write(one)
		_, _ = io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%s %v", hex.EncodeToString(sum.Sum(nil)), r.TransferEncoding)
	}))
	defer upstream.Close()
	r := start(t, upstream.URL, payments)
	reader, writer := io.Pipe()
	sum := sha256.New()
	go func() {
		block := make([]byte, 1<<20)
		for i := range size / len(block) {
			_, _ = rand.Read(block)
			_, _ = sum.Write(block)
			_, _ = writer.Write(block)
			if i == 0 {
				<-first // the upstream has seen the first byte before the second block is sent
			}
		}
		writer.Close()
	}()
	response, err := r.client.Post(r.url+"/upload", "application/octet-stream", reader)
	expect.MustEqual(t, "the error of the request", err, nil)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	expect.Error(t, "reading the answer to POST /upload", err, nil)
	expect.Equal(t, "hash and coding of what came", string(text), hex.EncodeToString(sum.Sum(nil))+" [chunked]")
}

// A hang-up of a client whose request is not guarded ends the upstream's work, as without a
// gateway.
func TestHangUpEndsWhatIsNotGuarded(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	r := start(t, upstream.URL, payments)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-begun; hangUp() }()
	_, err := r.send(ctx, "GET", "/slow", "")
	expect.Error(t, "GET /slow of a client that hangs up", err, context.Canceled)
	<-ended
}

func TestTrailersAndEarlyHints(t *testing.T) {
	for _, announced := range []bool{true, false} {
		upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			prefix := http.TrailerPrefix
			if announced {
				w.Header().Set("Trailer", "X-Sum")
				prefix = ""
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "paid")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set(prefix+"X-Sum", "42")
		})
		r := start(t, upstream.URL, payments)
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil }})
		for _, request := range []struct{ method, path, body string }{{"GET", "/other", ""}, {"POST", "/payments", "x"}} {
			a, err := r.send(ctx, request.method, request.path, request.body, "Idempotency-Key: a")
			expect.Error(t, request.method+" "+request.path, err, nil)
			expect.Equal(t, a.asked, a.said(), "201 paid")
			expect.Equal(t, a.asked+": trailers", a.trailer, http.Header{"X-Sum": {"42"}})
			r.wantHeader(a, "X-Sum", "")
			expect.Equal(t, a.asked+": X-Request-Id is there", a.header.Get("X-Request-Id") != "", true)
			if request.method == "GET" {
				r.wantHeader(a, "Link", "")
			}
			expect.Equal(t, "early hints up to "+a.asked, hints, 1) // a guarded request drops them
		}
		a := r.do("POST", "/payments", "x", "Idempotency-Key: a")
		r.wantPaid(a, "paid", true)
		expect.Equal(t, a.asked+" again: trailers", a.trailer, nil, cmpopts.EquateEmpty())
		r.wantHeader(a, "X-Sum", "")
		r.wantHeader(a, "Trailer", "")
	}
}

// seen answers with what the upstream has seen of a request.
type seen struct {
	Host   string      `json:"host"`
	URI    string      `json:"uri"`
	Header http.Header `json:"header"`
}

func mirror(t *testing.T) *shop {
	t.Helper()
	return newShop(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "the-upstream's")
		w.Header().Set("Keep-Alive", "timeout=5")
		_ = json.NewEncoder(w).Encode(seen{r.Host, r.RequestURI, r.Header})
	})
}

func (r *rig) see(method, path, body string, headers ...string) (seen, answer) {
	r.t.Helper()
	a := r.do(method, path, body, headers...)
	var s seen
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		r.t.Fatalf("%s: got %d %.500q, want what the upstream has seen: %v", a.asked, a.status, a.body, err)
	}
	return s, a
}

var liar = []string{
	"Idempotency-Fence: 9", "idempotency_fence: 9", "Idempotency-Operation: mine", "idempotency_operation: mine", "X-Forwarded-For: 6.6.6.6", "X_Forwarded_For: 6.6.6.6", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https",
	"Forwarded: for=6.6.6.6", "X-Request-Id: r-1", "Connection: Idempotency-Fence, X-Mine", "X-Mine: 1", "Te: trailers",
	"Proxy-Authorization: Basic eA==", "Idempotency-Key: a", "Idempotency-Token: t", "Authorization: Bearer b", "User-Agent: ", "Accept-Encoding: br", "Host: shop.example",
}

func TestHeadersToTheUpstream(t *testing.T) {
	upstream := mirror(t)
	host := strings.TrimPrefix(upstream.URL, "http://")
	for _, path := range []string{"/payments", "/other"} {
		r := start(t, upstream.URL, "routes: [{match: /payments, accept: key, pass_other_header: true}, {match: /, guard: false}]")
		got, a := r.see("POST", path, "", liar...)
		guarded := path == "/payments"
		fence := got.Header.Get("Idempotency-Fence")
		for _, check := range []struct {
			what      string
			got, want any
		}{
			{"fence", len(fence) > 5 && len(got.Header.Values("Idempotency-Fence")) == 1, guarded},
			{"operation", len(got.Header.Get("Idempotency-Operation")) == 32 && len(got.Header.Values("Idempotency-Operation")) == 1, guarded},
			{"lookalikes", got.Header["Idempotency_fence"] == nil && got.Header["Idempotency_operation"] == nil && got.Header["X_forwarded_for"] == nil, true},
			{"for", got.Header.Get("X-Forwarded-For"), "127.0.0.1"},
			{"host", got.Header.Get("X-Forwarded-Host"), ""},
			{"proto", got.Header.Get("X-Forwarded-Proto"), "http"},
			{"Forwarded", got.Header.Get("Forwarded"), ""},
			{"Host", got.Host, host},
			{"id", got.Header.Get("X-Request-Id"), "r-1"},
			{"id of the answer", strings.Join(a.header.Values("X-Request-Id"), ","), "r-1"},
			{"hop by hop", got.Header.Get("X-Mine") + got.Header.Get("Proxy-Authorization") + a.header.Get("Keep-Alive"), ""},
			{"credentials", got.Header.Get("Authorization"), "Bearer b"},
			{"token", got.Header.Get("Idempotency-Token"), "t"},
			{"agent", got.Header.Values("User-Agent") == nil, true},
			{"encoding", got.Header.Get("Accept-Encoding"), "br"},
			{"Te", got.Header.Get("TE"), "trailers"},
		} {
			if check.got != check.want {
				t.Errorf("%s: %s is %v, want %v", path, check.what, check.got, check.want)
			}
		}
		if key := got.Header.Get("Idempotency-Key"); guarded && key != "a" {
			t.Errorf("%s: Idempotency-Key is %q, want %q", path, key, "a")
		}
	}
}

func TestTrustedForwardedHeadersAreKeptAndAppendedTo(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, "routes: [{match: /payments, accept: key, pass_other_header: true}, {match: /, guard: false}]", func(c *Config) { c.TrustForwarded, c.PreserveHost = true, true })
	got, _ := r.see("POST", "/payments", "x", liar...)
	expect.Equal(t, "forwarded by POST /payments", got.forwarded(), forwarded{"shop.example", "6.6.6.6, 127.0.0.1", "evil", "https", ""})
	got, _ = r.see("GET", "/x", "")
	own := strings.TrimPrefix(r.url, "http://")
	expect.Equal(t, "forwarded by GET /x", got.forwarded(), forwarded{own, "127.0.0.1", own, "http", ""})
}

// forwarded is what a request says of where it comes from and for whom it is.
type forwarded struct{ host, byFor, byHost, byProto, standard string }

func (s seen) forwarded() forwarded {
	return forwarded{s.Host, s.Header.Get("X-Forwarded-For"), s.Header.Get("X-Forwarded-Host"), s.Header.Get("X-Forwarded-Proto"), s.Header.Get("Forwarded")}
}

func TestPathAndQueryArriveAsTheyCame(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/", "/a%2Fb", "//a", "/a/../b", "/a?x=1;y=%zz&&", "/a?", "/%C3%A9", "/a%00b", "/a//"} {
		conn := r.dial()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("reading the answer to GET %s: %v", path, err)
		}
		var got seen
		expect.Error(t, "reading the answer to GET "+path, json.NewDecoder(response.Body).Decode(&got), nil)
		expect.Equal(t, "the URI that the upstream saw", got.URI, path)
		conn.Close()
	}
	below := start(t, upstream.URL+"/base/", payments)
	got, _ := below.see("GET", "/a%2Fb?x=1", "")
	expect.Equal(t, "the URI that an upstream with a path saw", got.URI, "/base/a%2Fb?x=1")
}

func TestUnixUpstream(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	expect.MustEqual(t, "the error of listening", err, nil)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	r := start(t, "unix://"+socket, payments)
	expect.Equal(t, "GET /x", r.do("GET", "/x", "").said(), "200 localhost")
	for i := range 2 {
		a := r.pay("a")
		expect.Equal(t, a.asked, a.said(), "200 localhost")
		r.wantReplayed(a, i == 1)
	}
}

func TestUpstreamURLs(t *testing.T) {
	for _, url := range []string{"http://h:1", "https://h", "http://[::1]:80/base", "unix:///run/app.sock"} {
		if upstream, err := ParseUpstream(url); err != nil || upstream.String() != url {
			t.Errorf("ParseUpstream(%q): got %v and error %v, want it as it is", url, upstream, err)
		}
	}
	for _, url := range []string{"", "h:1", "ftp://h", "http://", "http://:80", "http://user:hunter2@h", "http://h?x=1", "http://h#x", "unix://run/app", "unix:app", "http://h:hunter2"} {
		if _, err := ParseUpstream(url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParseUpstream(%q): got error %v, want one without the password", url, err)
		}
	}
	if _, err := ParseUpstream("localhost:3000"); err == nil || !strings.Contains(err.Error(), "http://") {
		t.Errorf("ParseUpstream of a host and port alone: got error %v, want one that says what is missing", err)
	}
}

func TestUnguardedFailures(t *testing.T) {
	upstream := converse(t, func(_ int64, r *http.Request, conn net.Conn) bool {
		if r.URL.Path == "/cut" {
			say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")
		}
		return false
	})
	r := start(t, upstream.url, payments)
	r.wantCode(r.do("POST", "/x", "body"), api.OutcomeUnknown)
	if a, err := r.send(t.Context(), "GET", "/cut", ""); err == nil {
		t.Errorf("GET /cut: got %+v, want the connection cut", a)
	}
	away := start(t, "http://127.0.0.1:1", payments)
	away.wantCode(away.do("GET", "/x", ""), api.UpstreamUnavailable)
}

func TestOwnPages(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, "routes: [{match: POST /payments, accept: token, keep: [2xx]}, {match: /b, scope: s}, {match: /, guard: false}]")
	var policies api.Policies
	a := r.do("GET", "/idempotency-policy", "")
	expect.Error(t, "reading the answer to "+a.asked, json.Unmarshal([]byte(a.body), &policies), nil)
	expect.MustEqual(t, a.asked+": routes in "+a.body, len(policies.Routes), 2)
	first, second := policies.Routes[0], policies.Routes[1]
	expect.Equal(t, a.asked+": the first route", first.Route, "POST /payments")
	expect.Equal(t, a.asked+": the first route's headers", first.Headers, []string{"Idempotency-Token"})
	expect.Equal(t, a.asked+": the second route's scope", second.Scope, "s")
	a = r.do("GET", "/problems/upstream-unavailable", "")
	r.wantStatus(a, 200)
	expect.Contains(t, a.asked, a.body, "<h1>")
	expect.Contains(t, a.asked+": Content-Type", a.header.Get("Content-Type"), "text/html")
	upstream.wantPaid(t, 0)
	// the upstream's own
	for _, path := range []string{"/problems/none", "/problems/", "/problems"} {
		r.wantStatus(r.do("GET", path, ""), 201)
	}
	r.wantStatus(r.do("POST", "/idempotency-policy", ""), 201)
	conn := r.dial()
	say(conn, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n")
	expect.Contains(t, "CONNECT", untilEnd(t, "CONNECT", conn), "HTTP/1.1 405")
}

func TestRequestIDThatIsNotSaneIsReplaced(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments)
	for _, id := range []string{"a b", strings.Repeat("x", 129), "<script>", ""} {
		a := r.do("GET", "/x", "", "X-Request-Id: "+id)
		r.wantStatus(a, 201)
		if got := a.header.Get("X-Request-Id"); got == id || len(got) != 22 {
			t.Errorf("%s: got X-Request-Id %q, want another one, of 22 characters", a.asked, got)
		}
	}
}
