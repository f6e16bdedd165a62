package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// whoami is a service that names callers by their session, whatever else their cookies are.
type whoami struct {
	*httptest.Server

	status atomic.Int64 // 0 = 200
	asked  atomic.Pointer[http.Request]
}

func newWhoami(t *testing.T) *whoami {
	t.Helper()
	w := &whoami{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		w.asked.Store(r)
		session, err := r.Cookie("session")
		switch {
		case w.status.Load() != 0:
			answer.Header().Set("X-User-Id", "ann")
			answer.WriteHeader(int(w.status.Load()))
		case err != nil:
			answer.WriteHeader(http.StatusUnauthorized)
		case session.Value != "":
			user, _, _ := strings.Cut(session.Value, "-")
			answer.Header().Set("X-User-Id", user)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func TestCallersAreThoseThatAServiceNames(t *testing.T) {
	who, upstream := newWhoami(t), newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, principal: {ask: {url: "`+who.URL+`/verify", header: X-User-Id}}}]`)
	pay := func(cookie string) answer {
		return r.do("POST", "/payments?x=1", "x", "Idempotency-Key: a", "Cookie: "+cookie, "X-Forwarded-Uri: /admin", "X-Forwarded-For: 10.0.0.1",
			"X_Forwarded_Uri: /admin", "Script_Name: /x", "X-Original-Url: /admin", "Connection: X-Api-Key", "X-Api-Key: other", "Idempotency-Fence: 1")
	}
	r.wantPaid(pay("session=ann-1"), "paid 1", false)
	// the cookie changes with each answer
	r.wantPaid(pay("session=ann-2; csrftoken=rotated"), "paid 1", true)
	r.wantPaid(pay("session=bob-1"), "paid 2", false)
	asked := who.asked.Load()
	expect.Equal(t, "the question", asked.Method+" "+asked.URL.Path+" "+asked.Header.Get("X-Forwarded-Method")+" "+asked.Header.Get("X-Forwarded-Uri"),
		"GET /verify POST /payments?x=1")
	expect.Equal(t, "headers that a client may not choose", asked.Header.Get("X-Forwarded-For")+asked.Header.Get("Content-Type"), "127.0.0.1")
	for _, name := range []string{"X_Forwarded_Uri", "Script_Name", "X-Original-Url", "X-Api-Key", "Idempotency-Fence"} {
		expect.Equal(t, name+" of the question, which the upstream does not get either", len(asked.Header.Values(name)), 0)
	}
	r.wantCode(pay("session="), api.Unauthorized) // known, and without a name
	r.wantCode(pay("other=1"), api.Unauthorized)
	for _, status := range []int64{302, 404, 500, 503} {
		who.status.Store(status)
		r.wantCode(pay("session=ann-1"), api.StoreUnavailable)
	}
	who.status.Store(403)
	r.wantCode(pay("session=ann-1"), api.Unauthorized)
	who.Close()
	a := pay("session=ann-1")
	r.wantCode(a, api.StoreUnavailable)
	expect.Contains(t, "detail", a.problem().Detail, "Nothing was done", "service that knows callers")
	upstream.wantPaid(t, 2)
}

// switching is a server that answers each request with another protocol, and stays.
func switching(t *testing.T, header string) (url string) {
	return hear(t, func(conn net.Conn) {
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n"+header+"\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
}

// net/http would read such an answer for ever.
func TestServersThatSwitchProtocolsHoldNothingUp(t *testing.T) {
	t.Parallel()
	upstream := newShop(t, nil)
	asking := switching(t, "X-User: ann\r\n")
	r := start(t, upstream.URL, `routes: [{match: POST /payments, principal: {ask: {url: "`+asking+`", header: X-User}}}]`)
	r.wantCode(r.do("POST", "/payments", "x", "Idempotency-Key: a"), api.StoreUnavailable)
	upstream.wantPaid(t, 0)

	mute := start(t, switching(t, "Idempotency-Resolution: completed\r\n"), resolvedPayments)
	expect.Equal(t, "what the client is told", mute.do("POST", "/payments", "x", "Idempotency-Key: a").problem().Code, api.OutcomeUnknown)
	expect.Eventually(t, "the question is in vain", func() bool {
		return strings.Contains(mute.metrics(), `coatcheck_gateway_resolutions_total{decision="in_vain"} 1`)
	})
}

func TestCallersByACookieThatStays(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, principal: {cookie: [sid, tenant]}}]`)
	pay := func(cookie string) answer {
		return r.do("POST", "/payments", "x", "Idempotency-Key: a", "Cookie: "+cookie)
	}
	r.wantPaid(pay("sid=ann; tenant=1"), "paid 1", false)
	r.wantPaid(pay("_ga=2; tenant=1; sid=ann"), "paid 1", true)
	r.wantPaid(pay("sid=bob; tenant=1"), "paid 2", false)
	for _, cookie := range []string{"sid=ann", "", "sid=; tenant=1"} {
		a := pay(cookie)
		r.wantCode(a, api.Unauthorized)
		expect.Equal(t, "field of the problem for "+cookie, a.problem().Field, "Cookie")
	}
	upstream.wantPaid(t, 2)
}

// A sender signs what it delivers, with another header each time.
func TestDeliveriesOfASenderHaveOneCaller(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, key_header: ce-source + ce-id, principal: none}]`)
	for i, signature := range []string{"a", "b"} {
		r.wantPaid(r.do("POST", "/payments", "x", "Ce-Source: /pay", "Ce-Id: 99", "Authorization: "+signature), "paid 1", i > 0)
	}
	r.wantPaid(r.do("POST", "/payments", "x", "Ce-Source: /refund", "Ce-Id: 99", "Authorization: a"), "paid 2", false)
	r.wantCode(r.do("POST", "/payments", "x", "Ce-Id: 99"), api.KeyMalformed)
	upstream.wantPaid(t, 2)
}
