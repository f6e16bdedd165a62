package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestGuardedRequestRunsOnceAndIsReplayed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		upstream := newShop(t, nil)
		r := start(t, upstream.URL, payments, on(store))
		first := r.pay("order-1")
		r.wantPaid(first, "paid 1", false)
		if fence, err := strconv.ParseInt(first.header.Get("X-Fence"), 10, 64); err != nil || fence < 1 {
			t.Errorf("the upstream got the fence %q", first.header.Get("X-Fence"))
		}
		r.wantPaid(r.pay("order-1"), "paid 1", true)
		r.wantPaid(r.pay("order-2"), "paid 2", false)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`, "Idempotency-Key: order-1"), wire.PayloadMismatch)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`), wire.KeyMissing)
		r.wantCode(r.pay("a,b"), wire.KeyMalformed)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`, "Idempotency-Token: never-issued"), wire.TokenUnknown)
		token := r.issue()
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Token: "+token), "paid 3", false)
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Token: "+token), "paid 3", true)
		upstream.wantPaid(t, 3)
	})
}

// What was written to the upstream and got no answer is in doubt at once, on every kind of failure, and nothing runs again under hold.
func TestUpstreamWithoutAWholeAnswerLeavesTheTokenInDoubt(t *testing.T) {
	routes := `routes: [{match: POST /payments, lease_ms: 60000, upstream_timeout_ms: 300, max_answer_bytes: 1000}]`
	for name, act := range map[string]func(conn net.Conn) bool{
		"closes":              func(net.Conn) bool { return false },
		"resets":              func(conn net.Conn) bool { _ = conn.(*net.TCPConn).SetLinger(0); return false },
		"never answers":       func(net.Conn) bool { return true },
		"garbage":             func(conn net.Conn) bool { _, _ = io.WriteString(conn, "secret-1 is not HTTP\r\n\r\n"); return false },
		"a status beyond 599": func(conn net.Conn) bool { return say(conn, "HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nok") },
		"switches protocols": func(conn net.Conn) bool {
			return say(conn, "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		},
		"short of Content-Length": func(conn net.Conn) bool { return !say(conn, "HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\npart") },
		"short of its last chunk": func(conn net.Conn) bool {
			return !say(conn, "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
		},
		"malformed chunk": func(conn net.Conn) bool {
			return !say(conn, "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\npart\r\n")
		},
		"hangs in the body":         func(conn net.Conn) bool { return say(conn, "HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\npart") },
		"hangs in the headers":      func(conn net.Conn) bool { return say(conn, "HTTP/1.1 201 Created\r\nContent-") },
		"only informational answer": func(conn net.Conn) bool { return !say(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool { return act(conn) })
			r := start(t, upstream.url, routes)
			token := r.issue()
			first := r.do("POST", "/payments", "x", "Idempotency-Token: "+token)
			r.wantCode(first, wire.OutcomeUnknown)
			if first.problem().See != "/token/"+token {
				t.Errorf("see %q", first.problem().See)
			}
			if state := r.state(token); state != idempotency.InDoubt {
				t.Errorf("the token is %s", state)
			}
			again := r.do("POST", "/payments", "x", "Idempotency-Token: "+token)
			r.wantCode(again, wire.IdempotencyUnknown)
			if again.problem().See != "/token/"+token || !strings.Contains(again.header.Get("Link"), policyPath) {
				t.Errorf("see %q, link %q", again.problem().See, again.header.Get("Link"))
			}
			if n := upstream.read.Load(); n != 1 {
				t.Errorf("the upstream was asked %d times", n)
			}
		})
	}
}

func say(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

// An answer over the limit is on its way when it breaks off: the client's connection is cut, and repeats hear that the answer was not kept.
func TestLargeAnswerThatBreaksOffCutsTheClientOff(t *testing.T) {
	upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool {
		return !say(conn, "HTTP/1.1 201 Created\r\nContent-Length: 3000\r\n\r\n"+strings.Repeat("x", 2000))
	})
	r := start(t, upstream.url, `routes: [{match: POST /payments, max_answer_bytes: 1000}]`)
	if a, err := r.send(t.Context(), "POST", "/payments", "x", "Idempotency-Key: a"); err == nil {
		t.Errorf("a whole answer: %d, %d bytes", a.status, len(a.body))
	}
	again := r.do("POST", "/payments", "x", "Idempotency-Key: a")
	if again.status != 201 || again.header.Get("Idempotent-Body") != "not-kept" || again.body != "" {
		t.Errorf("%d %v %q", again.status, again.header, again.body)
	}
	if n := upstream.read.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

// The limit of time is for the answer to come. One that is too large to keep is recorded as such when it grows over the limit, and may then take longer.
func TestLargeAnswerMayTakeLongerThanTheLimit(t *testing.T) {
	rest := make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2000))
		_ = http.NewResponseController(w).Flush()
		<-rest
		_, _ = w.Write(make([]byte, 3000))
	})
	r := start(t, upstream.URL, `routes: [{match: POST /payments, max_answer_bytes: 1000, upstream_timeout_ms: 300}]`)
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/payments", strings.NewReader("x"))
	request.Header.Set("Idempotency-Key", "a")
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	limit := time.NewTimer(600 * time.Millisecond) // twice the route's limit
	<-limit.C
	close(rest)
	if body, err := io.ReadAll(response.Body); err != nil || len(body) != 5000 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

func TestUpstreamThatCanNotBeReachedGivesTheClaimBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close()
		r := start(t, "http://"+address, payments, on(store))
		token := r.issue()
		for _, header := range []string{"Idempotency-Token: " + token, "Idempotency-Key: k"} {
			a := r.do("POST", "/payments", "x", header)
			r.wantCode(a, wire.UpstreamUnavailable)
			if a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		if state := r.state(token); state != idempotency.Issued {
			t.Errorf("the token is %s", state)
		}
		if listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
		upstream := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })}
		go func() { _ = upstream.Serve(listener) }()
		t.Cleanup(func() { upstream.Close() })
		for _, header := range []string{"Idempotency-Token: " + token, "Idempotency-Key: k"} {
			r.wantPaid(r.do("POST", "/payments", "x", header), "", false)
			r.wantPaid(r.do("POST", "/payments", "x", header), "", true)
		}
	})
}

func TestHangUpEndsNothing(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-proceed:
		case <-r.Context().Done():
			t.Error("the upstream request was cancelled")
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	})
	r := start(t, upstream.URL, payments)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := r.send(ctx, "POST", "/payments", "x", "Idempotency-Key: a")
		gone <- err
	}()
	<-begun
	hangUp()
	if err := <-gone; err == nil {
		t.Error("an answer came")
	}
	r.wantCode(r.do("POST", "/payments", "x", "Idempotency-Key: a"), wire.InProgress)
	close(proceed)
	r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Prefer: wait=20"), "paid", true)
	upstream.wantPaid(t, 1)
}

func TestUpgradeOnAGuardedRouteIsRefused(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: /socket}, {match: /free, required: false}]`)
	a := r.do("GET", "/socket", "", "Connection: Upgrade", "Upgrade: websocket", "Idempotency-Key: a")
	r.wantCode(a, wire.InvalidRequest)
	r.wantCode(r.do("GET", "/free", "", "Connection: keep-alive, upgrade", "Upgrade: websocket", "Idempotency-Key: a"), wire.InvalidRequest)
	upstream.wantPaid(t, 0)
	r.wantPaid(r.do("GET", "/socket", "", "Idempotency-Key: a"), "paid 1", false)
	r.wantPaid(r.do("GET", "/free", "", "Connection: Upgrade", "Upgrade: websocket"), "paid 2", false)
}

func TestOptionalRoutePassesRequestsWithoutAHeader(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, required: false}]`)
	r.wantPaid(r.do("POST", "/payments", "x"), "paid 1", false)
	r.wantPaid(r.do("POST", "/payments", "x"), "paid 2", false)
	r.wantPaid(r.pay("a"), "paid 3", false)
	r.wantPaid(r.pay("a"), "paid 3", true)
}

func TestAnotherWayToWriteAPathIsGuardedToo(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments}, {match: "POST /a/{id}/b"}]`)
	for _, path := range []string{"/payments", "//payments", "/./payments", "/x/../payments", "/x/%2e%2e/payments", "/%70ayments", "/%2fpayments", "/x//..%2f..//payments", "/a/1/b", "/a%2f1%2fb", "/payments?x=1"} {
		if a := r.do("POST", path, "x"); a.problem().Code != wire.KeyMissing {
			t.Errorf("%s passed: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/paymentsx", "/a/1/c", "/payments/1", "/"} {
		if a := r.do("POST", path, "x"); a.status != 201 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.do("GET", "/payments", ""); a.status != 201 {
		t.Errorf("another method: %d", a.status)
	}
}

func TestStatusesThatAreNotKeptRunAgain(t *testing.T) {
	status := 503
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	r := start(t, upstream.URL, `routes: [{match: POST /payments, keep: [2xx, 4xx]}]`)
	for range 2 {
		if a := r.pay("a"); a.status != 503 {
			t.Errorf("%d", a.status)
		}
	}
	status = 404
	r.pay("a")
	if a := r.pay("a"); a.status != 404 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %v", a.status, a.header)
	}
	upstream.wantPaid(t, 3)
}

func TestBodiesAreBoundedInSizeAndTime(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, max_body_bytes: 10}]`, func(c *Config) { c.BodyTimeout = 200 * time.Millisecond })
	r.wantCode(r.do("POST", "/payments", "01234567890", "Idempotency-Key: a"), wire.PayloadTooLarge)
	r.wantPaid(r.do("POST", "/payments", "0123456789", "Idempotency-Key: a"), "paid 1", false)

	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say(conn, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: b\r\nContent-Length: 5\r\n\r\n12")
	text, err := io.ReadAll(conn) // the rest never comes
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 400 ") || !strings.Contains(string(text), `"invalid-request"`) {
		t.Errorf("%v %s", err, text)
	}
	upstream.wantPaid(t, 1)
}

// The bound on the body's time is lifted when the body is there: a request that waits for another one's answer may wait for longer.
func TestBoundOnTheBodyEndsWithTheBody(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		w.WriteHeader(http.StatusCreated)
	})
	r := start(t, upstream.URL, payments, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	first := make(chan answer, 1)
	go func() { first <- r.pay("a") }()
	<-begun
	waited := make(chan answer, 1)
	go func() { waited <- r.do("POST", "/payments", `{"amount":1}`, "Idempotency-Key: a", "Prefer: wait=20") }()
	limit := time.NewTimer(400 * time.Millisecond) // four times the bound
	<-limit.C
	close(proceed)
	r.wantPaid(<-first, "", false)
	r.wantPaid(<-waited, "", true)
}

func readUntil(t *testing.T, conn net.Conn, end string) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var text strings.Builder
	one := make([]byte, 1)
	for !strings.HasSuffix(text.String(), end) {
		if _, err := conn.Read(one); err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.Write(one)
	}
	return text.String()
}

func TestExpectContinueIsAnsweredOnGuardedAndOtherRoutes(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/payments", "/other"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		say(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n")
		if got := readUntil(t, conn, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 100 ") {
			t.Errorf("%s: %s", path, got)
		}
		say(conn, "hello")
		text, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(text), "HTTP/1.1 201") || !strings.HasSuffix(string(text), "hello") {
			t.Errorf("%s: %v %s", path, err, text)
		}
		conn.Close()
	}
}

func TestManyRepeatsAtOnceRunOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		upstream := newShop(t, nil)
		gateways := []*rig{start(t, upstream.URL, payments, on(store)), start(t, upstream.URL, payments, on(store))}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				r := gateways[i%2]
				if a, err := r.send(t.Context(), "POST", "/payments", "x", "Idempotency-Key: a", "Prefer: wait=20"); err != nil || a.status != 201 || a.body != "paid 1" {
					t.Errorf("%v %d %s", err, a.status, a.body)
				}
			})
		}
		wg.Wait()
		upstream.wantPaid(t, 1)
	})
}
