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
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/coatcheck/coatcheck/internal/wire"
)

func TestWebSocketPassesAnUnguardedRoute(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer socket.CloseNow()
		kind, text, err := socket.Read(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		_ = socket.Write(r.Context(), kind, append([]byte("you said "), text...))
		_, _, _ = socket.Read(r.Context()) // the other side closes
	})
	r := start(t, upstream.URL, payments)
	socket, response, err := websocket.Dial(t.Context(), r.url+"/socket", &websocket.DialOptions{HTTPHeader: http.Header{"X-Request-Id": {"w-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("X-Request-Id") != "w-1" {
		t.Errorf("%v", response.Header)
	}
	if err := socket.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := socket.Read(t.Context()); err != nil || string(text) != "you said hello" {
		t.Errorf("%q %v", text, err)
	}
	if err := socket.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

// A client that offers HTTP/2 on a plain connection could talk to the upstream past every guard if the offer was passed on.
func TestOfferOfHTTP2IsNotPassedOn(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("HTTP2-Settings"))
	})
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/other", "/payments"} {
		if a := r.do("POST", path, "x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Http2-Settings: AAMAAABkAAQAAP__", "Idempotency-Key: a"); a.status != 200 || a.body != `"" "" ""` {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reader := bufio.NewReader(response.Body)
	for i := range 3 {
		line, err := reader.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q %v", line, err)
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
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != hex.EncodeToString(sum.Sum(nil))+" [chunked]" {
		t.Errorf("%s %v", text, err)
	}
}

// A hang-up of a client whose request is not guarded ends the upstream's work, as without a gateway.
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
	if a, err := r.send(ctx, "GET", "/slow", ""); err == nil {
		t.Errorf("%d", a.status)
	}
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
		a, err := r.send(ctx, "GET", "/other", "")
		if err != nil || a.body != "paid" || a.trailer.Get("X-Sum") != "42" || a.header.Get("X-Sum") != "" || hints != 1 || a.header.Get("X-Request-Id") == "" || a.header.Get("Link") != "" {
			t.Errorf("not guarded: %v %+v, %d hints", err, a, hints)
		}
		a, err = r.send(ctx, "POST", "/payments", "x", "Idempotency-Key: a")
		if err != nil || a.body != "paid" || a.trailer.Get("X-Sum") != "42" || a.header.Get("X-Sum") != "" || hints != 1 || a.header.Get("X-Request-Id") == "" {
			t.Errorf("guarded: %v %+v, %d hints", err, a, hints)
		}
		if a := r.do("POST", "/payments", "x", "Idempotency-Key: a"); a.body != "paid" || len(a.trailer) > 0 || a.header.Get("X-Sum") != "" || a.header.Get("Trailer") != "" {
			t.Errorf("replayed: %+v", a)
		}
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
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	return s, a
}

var liar = []string{
	"Idempotency-Fence: 9", "idempotency_fence: 9", "X-Forwarded-For: 6.6.6.6", "X_Forwarded_For: 6.6.6.6", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https",
	"Forwarded: for=6.6.6.6", "X-Request-Id: r-1", "Connection: Idempotency-Key, X-Request-Id, Idempotency-Fence, X-Mine", "X-Mine: 1", "Te: trailers",
	"Proxy-Authorization: Basic eA==", "Idempotency-Key: a", "Idempotency-Token: t", "Authorization: Bearer b", "User-Agent: ", "Accept-Encoding: br", "Host: shop.example",
}

func TestHeadersToTheUpstream(t *testing.T) {
	upstream := mirror(t)
	host := strings.TrimPrefix(upstream.URL, "http://")
	for _, path := range []string{"/payments", "/other"} {
		r := start(t, upstream.URL, "routes: [{match: /payments, accept: key}]")
		got, a := r.see("POST", path, "", liar...)
		guarded := path == "/payments"
		fence := got.Header.Get("Idempotency-Fence")
		for _, check := range []struct {
			what      string
			got, want any
		}{
			{"fence", len(fence) > 5 && len(got.Header.Values("Idempotency-Fence")) == 1, guarded},
			{"lookalikes", got.Header["Idempotency_fence"] == nil && got.Header["X_forwarded_for"] == nil, true},
			{"for", got.Header.Get("X-Forwarded-For"), "127.0.0.1"},
			{"host", got.Header.Get("X-Forwarded-Host"), "shop.example"},
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
			t.Errorf("key %q", key)
		}
	}
}

func TestTrustedForwardedHeadersAreKeptAndAppendedTo(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, "routes: [{match: /payments, accept: key}]", func(c *Config) { c.TrustForwarded, c.PreserveHost = true, true })
	got, _ := r.see("POST", "/payments", "x", liar...)
	if got.Host != "shop.example" || got.Header.Get("X-Forwarded-For") != "6.6.6.6, 127.0.0.1" || got.Header.Get("X-Forwarded-Host") != "evil" || got.Header.Get("X-Forwarded-Proto") != "https" || got.Header.Get("Forwarded") != "" {
		t.Errorf("%+v", got)
	}
	got, _ = r.see("GET", "/x", "")
	if got.Header.Get("X-Forwarded-For") != "127.0.0.1" || got.Header.Get("X-Forwarded-Host") == "" || got.Header.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("%+v", got)
	}
}

func TestPathAndQueryArriveAsTheyCame(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/", "/a%2Fb", "//a", "/a/../b", "/a?x=1;y=%zz&&", "/a?", "/%C3%A9", "/a%00b", "/a//"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got seen
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got.URI != path {
			t.Errorf("%s arrived as %s (%v)", path, got.URI, err)
		}
		conn.Close()
	}
	below := start(t, upstream.URL+"/base/", payments)
	if got, _ := below.see("GET", "/a%2Fb?x=1", ""); got.URI != "/base/a%2Fb?x=1" {
		t.Errorf("%s", got.URI)
	}
}

func TestUnixUpstream(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	r := start(t, "unix://"+socket, payments)
	if a := r.do("GET", "/x", ""); a.body != "localhost" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for i := range 2 {
		if a := r.pay("a"); a.body != "localhost" || (a.header.Get("Idempotent-Replayed") != "") != (i == 1) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

func TestUpstreamURLs(t *testing.T) {
	for _, url := range []string{"http://h:1", "https://h", "http://[::1]:80/base", "unix:///run/app.sock"} {
		if upstream, err := ParseUpstream(url); err != nil || upstream.String() != url {
			t.Errorf("%s: %v %v", url, upstream, err)
		}
	}
	for _, url := range []string{"", "h:1", "ftp://h", "http://", "http://:80", "http://user:hunter2@h", "http://h?x=1", "http://h#x", "unix://run/app", "unix:app", "http://h:hunter2"} {
		if _, err := ParseUpstream(url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
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
	r.wantCode(r.do("POST", "/x", "body"), wire.OutcomeUnknown)
	if a, err := r.send(t.Context(), "GET", "/cut", ""); err == nil {
		t.Errorf("a whole answer: %+v", a)
	}
	away := start(t, "http://127.0.0.1:1", payments)
	away.wantCode(away.do("GET", "/x", ""), wire.UpstreamUnavailable)
}

func TestOwnPages(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, "routes: [{match: POST /payments, accept: token, keep: [2xx]}, {match: /b, scope: s}]")
	var policies wire.Policies
	a := r.do("GET", "/idempotency-policy", "")
	if err := json.Unmarshal([]byte(a.body), &policies); err != nil || len(policies.Routes) != 2 || policies.Routes[0].Route != "POST /payments" || !slices.Equal(policies.Routes[0].Headers, []string{"Idempotency-Token"}) || policies.Routes[1].Scope != "s" {
		t.Errorf("%v %s", err, a.body)
	}
	if a := r.do("GET", "/problems/upstream-unavailable", ""); a.status != 200 || !strings.Contains(a.body, "<h1>") || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("%d %v", a.status, a.header)
	}
	upstream.wantPaid(t, 0)
	for _, path := range []string{"/problems/none", "/problems/", "/problems"} { // the upstream's own
		if a := r.do("GET", path, ""); a.status != 201 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := r.do("POST", "/idempotency-policy", ""); a.status != 201 {
		t.Errorf("%d", a.status)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say(conn, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n")
	if text, _ := io.ReadAll(conn); !strings.HasPrefix(string(text), "HTTP/1.1 405") {
		t.Errorf("%s", text)
	}
}

func TestRequestIDThatIsNotSaneIsReplaced(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments)
	for _, id := range []string{"a b", strings.Repeat("x", 129), "<script>", ""} {
		if a := r.do("GET", "/x", "", "X-Request-Id: "+id); a.status != 201 || a.header.Get("X-Request-Id") == id || len(a.header.Get("X-Request-Id")) != 22 {
			t.Errorf("%q: %v", id, a.header)
		}
	}
}
