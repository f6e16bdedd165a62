package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestGuardedRequestRunsOnceAndIsReplayed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		upstream := newShop(t, nil)
		r := start(t, upstream.URL, payments, on(store))
		first := r.pay("order-1")
		r.wantPaid(first, "paid 1", false)
		if fence := number64(t, first.header.Get("X-Fence")); fence < 1 {
			t.Errorf("fence that the upstream got: %d, want a positive one", fence)
		}
		r.wantPaid(r.pay("order-1"), "paid 1", true)
		r.wantPaid(r.pay("order-2"), "paid 2", false)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`, "Idempotency-Key: order-1"), api.PayloadMismatch)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`), api.KeyMissing)
		r.wantCode(r.pay("a,b"), api.KeyMalformed)
		r.wantCode(r.do("POST", "/payments", `{"amount":2}`, "Idempotency-Token: never-issued"), api.TokenUnknown)
		token := r.issue()
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Token: "+token), "paid 3", false)
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Token: "+token), "paid 3", true)
		upstream.wantPaid(t, 3)
	})
}

// What was written to the upstream and got no answer is in doubt at once, on every kind of failure,
// and nothing runs again under hold.
func TestUpstreamWithoutAWholeAnswerLeavesTheTokenInDoubt(t *testing.T) {
	routes := `routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 2000, max_answer_bytes: 1000}, {match: /, guard: false}]`
	for name, act := range map[string]func(conn net.Conn) bool{
		"closes":              func(net.Conn) bool { return false },
		"resets":              func(conn net.Conn) bool { _ = conn.(*net.TCPConn).SetLinger(0); return false },
		"never answers":       func(net.Conn) bool { return true },
		"garbage":             func(conn net.Conn) bool { _, _ = io.WriteString(conn, "secret-1 is not HTTP\r\n\r\n"); return false },
		"a status beyond 599": func(conn net.Conn) bool { return say(conn, "HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nok") },
		"a status below 100":  func(conn net.Conn) bool { return say(conn, "HTTP/1.1 000 None\r\nContent-Length: 2\r\n\r\nok") },
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
			t.Parallel()
			upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool { return act(conn) })
			r := start(t, upstream.url, routes)
			token := r.issue()
			first := r.do("POST", "/payments", "x", "Idempotency-Token: "+token)
			r.wantCode(first, api.OutcomeUnknown)
			expect.Equal(t, first.asked+": see", first.problem().See, "/token/"+token)
			r.wantState(token, idempotency.StateInDoubt)
			again := r.do("POST", "/payments", "x", "Idempotency-Token: "+token)
			r.wantCode(again, api.IdempotencyUnknown)
			expect.Equal(t, again.asked+": see", again.problem().See, "/token/"+token)
			expect.Contains(t, again.asked+": Link", again.header.Get("Link"), policyPath)
			upstream.wantRead(t, 1)
		})
	}
}

func say(conn net.Conn, text string) bool {
	_, err := io.WriteString(conn, text)
	return err == nil
}

// An answer over the limit is on its way when it breaks off: the client's connection is cut, and
// repeats hear that the answer was not kept.
func TestLargeAnswerThatBreaksOffCutsTheClientOff(t *testing.T) {
	upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool {
		return !say(conn, "HTTP/1.1 201 Created\r\nContent-Length: 3000\r\n\r\n"+strings.Repeat("x", 2000))
	})
	r := start(t, upstream.url, `routes: [{match: POST /payments, max_answer_bytes: 1000}, {match: /, guard: false}]`)
	if a, err := r.send(t.Context(), "POST", "/payments", "x", "Idempotency-Key: a"); err == nil {
		t.Errorf("%s: got a whole answer of %d and %d bytes, want the connection cut", a.asked, a.status, len(a.body))
	}
	again := r.do("POST", "/payments", "x", "Idempotency-Key: a")
	expect.Equal(t, again.asked, again.said(), "201 ")
	r.wantHeader(again, "Idempotent-Body", "not-kept")
	upstream.wantRead(t, 1)
}

// The limit of time is for the answer to come. One that is too large to keep is recorded as such
// when it grows over the limit, and may then take longer.
func TestLargeAnswerMayTakeLongerThanTheLimit(t *testing.T) {
	t.Parallel() // it waits
	rest := make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2000))
		_ = http.NewResponseController(w).Flush()
		<-rest
		_, _ = w.Write(make([]byte, 3000))
	})
	r := start(t, upstream.URL, `routes: [{match: POST /payments, max_answer_bytes: 1000, upstream_timeout_ms: 3000}, {match: /, guard: false}]`)
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/payments", strings.NewReader("x"))
	request.Header.Set("Idempotency-Key", "a")
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatalf("a guarded request: %v", err)
	}
	defer response.Body.Close()
	limit := time.NewTimer(6 * time.Second) // twice the route's limit
	<-limit.C
	close(rest)
	body, err := io.ReadAll(response.Body)
	expect.Error(t, "reading the answer", err, nil)
	expect.Equal(t, "bytes of the answer", len(body), 5000)
}

func TestUpstreamThatCanNotBeReachedGivesTheClaimBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		address := proctest.ClosedPort(t) // nobody else gets it, the gateway neither
		r := start(t, "http://"+address, payments, on(store))
		token := r.issue()
		for _, header := range []string{"Idempotency-Token: " + token, "Idempotency-Key: k"} {
			a := r.do("POST", "/payments", "x", header)
			r.wantCode(a, api.UpstreamUnavailable)
			expect.Equal(t, a.asked+": Retry-After is there", a.header.Get("Retry-After") != "", true)
		}
		r.wantState(token, idempotency.StateIssued)
		listener, err := net.Listen("tcp", address)
		expect.MustEqual(t, "the error of listening again", err, nil)
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
	expect.Error(t, "the request of the client that hung up", <-gone, context.Canceled)
	r.wantCode(r.do("POST", "/payments", "x", "Idempotency-Key: a"), api.InProgress)
	close(proceed)
	r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a", willWait), "paid", true)
	upstream.wantPaid(t, 1)
}

func TestUpgradeOnAGuardedRouteIsRefused(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: /socket}, {match: /free, required: false}, {match: /, guard: false}]`)
	a := r.do("GET", "/socket", "", "Connection: Upgrade", "Upgrade: websocket", "Idempotency-Key: a")
	r.wantCode(a, api.InvalidRequest)
	r.wantCode(r.do("GET", "/free", "", "Connection: keep-alive, upgrade", "Upgrade: websocket", "Idempotency-Key: a"), api.InvalidRequest)
	upstream.wantPaid(t, 0)
	r.wantPaid(r.do("GET", "/socket", "", "Idempotency-Key: a"), "paid 1", false)
	r.wantPaid(r.do("GET", "/free", "", "Connection: Upgrade", "Upgrade: websocket"), "paid 2", false)
}

func TestBodiesAreBoundedInTime(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments, func(c *Config) { c.BodyTimeout = 200 * time.Millisecond })
	conn := r.dial()
	say(conn, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: b\r\nContent-Length: 5\r\n\r\n12")
	text, err := io.ReadAll(conn) // the rest never comes
	expect.Error(t, "reading the answer to a body that does not come", err, nil)
	expect.Contains(t, "answer to a body that does not come", string(text), "HTTP/1.1 400 ", `"invalid-request"`, `"field":"body"`, "i/o timeout")
	expect.Equal(t, "the answer names the gateway's own address", strings.Contains(string(text), conn.RemoteAddr().String()), false)
	upstream.wantPaid(t, 0)
}

// The bound on the body's time is lifted when the body is there: a request that waits for another
// one's answer may wait for longer.
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
	go func() { waited <- r.do("POST", "/payments", `{"amount":1}`, "Idempotency-Key: a", willWait) }()
	limit := time.NewTimer(400 * time.Millisecond) // four times the bound
	<-limit.C
	close(proceed)
	r.wantPaid(<-first, "", false)
	r.wantPaid(<-waited, "", true)
}

// readUntil reads what comes until it ends with a text.
func readUntil(t *testing.T, conn net.Conn, end string) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	text, err := until(conn, end)
	if err != nil {
		t.Fatalf("reading until %q: %v after %q", end, err, text)
	}
	return text
}

func until(conn net.Conn, end string) (string, error) {
	var text strings.Builder
	one := make([]byte, 1)
	for !strings.HasSuffix(text.String(), end) {
		if _, err := conn.Read(one); err != nil {
			return text.String(), err
		}
		text.Write(one)
	}
	return text.String(), nil
}

func TestExpectContinueIsAnsweredOnGuardedAndOtherRoutes(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	r := start(t, upstream.URL, payments)
	for _, path := range []string{"/payments", "/other"} {
		conn := r.dial()
		say(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n")
		expect.Contains(t, "POST "+path+" that expects 100", readUntil(t, conn, "\r\n\r\n"), "HTTP/1.1 100 ")
		say(conn, "hello")
		text, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(text), "HTTP/1.1 201") || !strings.HasSuffix(string(text), "hello") {
			t.Errorf("POST %s: got %q and error %v, want 201 and hello", path, text, err)
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
				a, err := r.send(t.Context(), "POST", "/payments", "x", "Idempotency-Key: a", willWait)
				expect.Error(t, "one of many requests", err, nil)
				expect.Equal(t, "one of many requests", a.said(), "201 paid 1")
			})
		}
		wg.Wait()
		upstream.wantPaid(t, 1)
	})
}
