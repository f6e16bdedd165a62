package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

const everyNameCharacter = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:~@-"

func onEmbedded(t testing.TB) *service {
	t.Helper()
	return serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
}

func TestNamesAtTheirBoundsAreTakenAndDecodedOnce(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for path, key := range map[string]string{
		"a": "a", strings.Repeat("a", 200): strings.Repeat("a", 200), everyNameCharacter: everyNameCharacter,
		// each alone
		"-": "-", ".": ".", "..": "..", "...": "...", "_": "_", ":": ":", "~": "~", "@": "@",
		// encoded without need
		"a%3Ab": "a:b", "a%3ac": "a:c", "%61%62": "ab", "%7E1": "~1", "%2E%2E1": "..1", "%41%2d%5f": "A-_", "x%40y": "x@y",
		strings.Repeat("%7e", 200): strings.Repeat("~", 200),
	} {
		expect.Equal(t, "GET /incr/"+path, must[api.Incremented](t, s, 200, "GET", "/incr/"+path, ""), api.Incremented{Key: key, Value: 1, First: 1})
		expect.Equal(t, "GET /counter/"+path, must[api.Counter](t, s, 200, "GET", "/counter/"+path, ""), api.Counter{Key: key, Value: 1})
	}
	pool := strings.Repeat("%70", 199) + "@"
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/"+pool, "")
	ring := must[api.WorkerRing](t, s, 200, "GET", "/worker/"+strings.Repeat("p", 199)+"@", "")
	expect.Equal(t, "POST /worker/"+pool+": worker id", lease.WorkerID, 0)
	expect.Equal(t, "GET /worker/ppp…@: pool", ring.Pool, strings.Repeat("p", 199)+"@")
	expect.Equal(t, "GET /worker/ppp…@: used", ring.Used, 1)
}

func TestByAtItsBoundsOwnsItsRange(t *testing.T) {
	s := onEmbedded(t)
	for _, row := range []struct {
		query        string
		first, value int64
	}{
		{"", 1, 1},
		{"?", 2, 2},
		{"?by=1", 3, 3},
		{"?by=1000000", 4, 1_000_003},
		{"?%62y=2", 1_000_004, 1_000_005},
	} {
		got := must[api.Incremented](t, s, 200, "POST", "/incr/k"+row.query, "")
		expect.Equal(t, "POST /incr/k"+row.query, got, api.Incremented{Key: "k", First: row.first, Value: row.value})
	}
}

func TestNumbersAsBareDigitsForWhoAsksForText(t *testing.T) {
	s := onEmbedded(t)
	for _, row := range []struct{ method, path, accept, kind, body string }{
		{"GET", "/incr/k", "text/plain", "text/plain", "1\n"},
		{"POST", "/incr/k?by=9", "text/plain, */*", "text/plain", "10\n"},
		{"GET", "/counter/k", "text/plain;q=0.9", "text/plain", "10\n"},
		{"GET", "/counter/k", "*/*", "application/json", `{"key":"k","value":10}` + "\n"},
		{"GET", "/counter/k", "text/plain, application/json", "application/json", `{"key":"k","value":10}` + "\n"},
		{"GET", "/counter/k", "text/html", "application/json", `{"key":"k","value":10}` + "\n"},
	} {
		a := s.do(t, row.method, row.path, "", "Accept: "+row.accept)
		a.wantStatus(t, 200)
		a.wantBody(t, row.body)
		expect.Contains(t, a.asked+": Content-Type", a.header.Get("Content-Type"), row.kind)
		a.wantHeader(t, "Cache-Control", "no-store")
	}
}

func TestBodiesAtTheirBoundsAreTaken(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	padded := `{"scope":"s"}` + strings.Repeat(" ", limit-13)
	for _, body := range []string{
		"", " \n\t", "{}", " {} \n", `{"ttl_ms":null,"scope":null}`, `{"ttl_ms":1000}`, `{"ttl_ms":2592000000,"scope":"` + strings.Repeat("a", 200) + `"}`,
		`{"sc\u006fpe":"a:b"}`, padded,
	} {
		for _, chunked := range []bool{false, true} {
			a, err := s.send(t.Context(), call{method: "POST", path: "/token", body: body, chunked: chunked && body != ""})
			expect.NoError(t, fmt.Sprintf("POST /token with body %.60q, in chunks %v", body, chunked), err)
			decode[api.TokenIssued](t, a, 201)
		}
	}
	payment := `{"amount":1000000000,"currency":"EUR","to":"a"}`
	payment += strings.Repeat("\n", limit-len(payment))
	must[api.Payment](t, s, 201, "POST", "/payments", payment, "Idempotency-Key: exactly-the-limit")
	checkProblem(t, s.do(t, "POST", "/payments", payment+"\n", "Idempotency-Key: one-byte-more"), api.PayloadTooLarge)
	checkProblem(t, s.do(t, "POST", "/token", padded+" "), api.PayloadTooLarge)
}

func TestTokenIsIssuedWithItsDefaultsAndItsLocation(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	a := s.do(t, "POST", "/token", "")
	issued := decode[api.TokenIssued](t, a, 201)
	wantBetween(t, "POST /token: expires in", time.Until(issued.ExpiresAt.Time), 23*time.Hour, 25*time.Hour)
	a.wantHeader(t, "Location", "/token/"+issued.Token)
	a.wantHeader(t, "Cache-Control", "no-store")
	expect.Equal(t, "POST /token: scope", issued.Scope, "")
	status := must[api.TokenStatus](t, s, 200, "GET", a.header.Get("Location"), "")
	expect.Equal(t, "GET /token/{token} once it is issued", status, api.TokenStatus{State: "issued"}, cmpopts.IgnoreFields(api.TokenStatus{}, "ExpiresAt"))
}

func TestClaimAtItsBoundsIsGranted(t *testing.T) {
	s := onEmbedded(t)
	for _, body := range []string{
		`{"fingerprint":"f"}`, `{"fingerprint":"` + strings.Repeat("f", 256) + `","lease_ms":100,"policy":"hold"}`,
		`{"fingerprint":"` + strings.Repeat("é", 128) + `","lease_ms":86400000,"policy":"takeover"}`, `{"fingerprint":" ","policy":"","lease_ms":null}`,
	} {
		token := s.issue(t, "")
		granted := s.claim(t, token, body)
		if granted.Fence < 1 || granted.Attempt != 1 || granted.Lease == "" || granted.LeaseUntil.IsZero() {
			t.Errorf("claiming with %.60s: got %+v, want attempt 1 with a fence, a lease and its end", body, granted)
		}
	}
}

func TestWorkerRequestAtItsBoundsIsGranted(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000
	s := onEmbedded(t)
	for i, row := range []struct {
		body, layout string
		ttl          int64
	}{
		{"", "41/10/12", 30_000},
		{`{"ttl_ms":100}`, "41/10/12", 100},
		{`{"ttl_ms":86400000,"identity":"` + strings.Repeat("i", 200) + `"}`, "41/10/12", 86_400_000},
		{`{"ttl_ms":3600000,"layout":"41/5/5/12","epoch":"1970-01-01T00:00:00Z"}`, "41/5/5/12", hour},
		{`{"ttl_ms":3600000,"layout":"32/20/11@s","epoch":"2024-02-29T12:00:00.125+02:00"}`, "32/20/11@s", hour},
		{`{"ttl_ms":3600000,"layout":"62/1/0"}`, "62/1/0", hour},
		{`{"ttl_ms":3600000,"layout":"62/1/0@s","epoch":null,"identity":null}`, "62/1/0@s", hour},
		{`{"ttl_ms":3600000,"layout":"41/01/02"}`, "41/1/2", hour},
	} {
		pool := "/worker/p" + string(rune('a'+i))
		a := s.do(t, "POST", pool, row.body)
		lease := decode[api.WorkerLease](t, a, 201)
		expect.Equal(t, a.asked+": layout", lease.Layout, row.layout)
		expect.Equal(t, a.asked+": ttl_ms", lease.TTLMs, row.ttl)
		expect.Equal(t, a.asked+": renew_every_ms", lease.RenewEveryMs, row.ttl/3)
		expect.Equal(t, a.asked+": the window in ms", lease.NotAfter.Sub(lease.NotBefore.Time).Milliseconds(), row.ttl)
		a.wantHeader(t, "Cache-Control", "no-store")
		if row.ttl < hour {
			continue // on a busy machine it may have ended already
		}
		must[api.WorkerRenewed](t, s, 200, "PUT", pool+"/0", `{"ttl_ms":null}`, "Lease-Token: "+lease.Lease)
		must[nothing](t, s, 204, "DELETE", pool+"/0", "", "Lease-Token: "+lease.Lease)
	}
}
