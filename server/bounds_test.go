package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

const everyNameCharacter = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:~@-"

func onEmbedded(t testing.TB) *service {
	t.Helper()
	return serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
}

func TestNamesAtTheirBoundsAreTakenAndDecodedOnce(t *testing.T) {
	s := onEmbedded(t)
	for path, key := range map[string]string{
		"a": "a", strings.Repeat("a", 200): strings.Repeat("a", 200), everyNameCharacter: everyNameCharacter,
		"-": "-", ".": ".", "..": "..", "...": "...", "_": "_", ":": ":", "~": "~", "@": "@", // each alone
		"a%3Ab": "a:b", "a%3ac": "a:c", "%61%62": "ab", "%7E1": "~1", "%2E%2E1": "..1", "%41%2d%5f": "A-_", "x%40y": "x@y", // encoded without need
		strings.Repeat("%7e", 200): strings.Repeat("~", 200),
	} {
		got := must[wire.Incremented](t, s, 200, "GET", "/incr/"+path, "")
		if got != (wire.Incremented{Key: key, Value: 1, First: 1}) {
			t.Errorf("/incr/%s: %+v, want key %q", path, got, key)
		}
		if read := must[wire.Counter](t, s, 200, "GET", "/counter/"+path, ""); read != (wire.Counter{Key: key, Value: 1}) {
			t.Errorf("/counter/%s: %+v", path, read)
		}
	}
	pool := strings.Repeat("%70", 199) + "@"
	lease := must[wire.WorkerLease](t, s, 201, "POST", "/worker/"+pool, "")
	ring := must[wire.WorkerRing](t, s, 200, "GET", "/worker/"+strings.Repeat("p", 199)+"@", "")
	if lease.WorkerID != 0 || ring.Pool != strings.Repeat("p", 199)+"@" || ring.Used != 1 {
		t.Errorf("%+v %+v", lease, ring)
	}
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
		got := must[wire.Incremented](t, s, 200, "POST", "/incr/k"+row.query, "")
		if got.First != row.first || got.Value != row.value {
			t.Errorf("%s: %+v", row.query, got)
		}
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
		if a.status != 200 || string(a.body) != row.body || !strings.HasPrefix(a.header.Get("Content-Type"), row.kind) || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%+v: %d %v %q", row, a.status, a.header, a.body)
		}
	}
}

func TestBodiesAtTheirBoundsAreTaken(t *testing.T) {
	s := onEmbedded(t)
	padded := `{"scope":"s"}` + strings.Repeat(" ", limit-13)
	for _, body := range []string{
		"", " \n\t", "{}", " {} \n", `{"ttl_ms":null,"scope":null}`, `{"ttl_ms":1000}`, `{"ttl_ms":2592000000,"scope":"` + strings.Repeat("a", 200) + `"}`,
		`{"sc\u006fpe":"a:b"}`, padded,
	} {
		for _, chunked := range []bool{false, true} {
			a, err := s.send(t.Context(), call{method: "POST", path: "/token", body: body, chunked: chunked && body != ""})
			if err != nil {
				t.Fatal(err)
			}
			decode[wire.TokenIssued](t, a, 201)
		}
	}
	payment := `{"amount":1000000000,"currency":"EUR","to":"a"}`
	payment += strings.Repeat("\n", limit-len(payment))
	must[wire.Payment](t, s, 201, "POST", "/payments", payment, "Idempotency-Key: exactly-the-limit")
}

func TestTokenIsIssuedWithItsDefaultsAndItsLocation(t *testing.T) {
	s := onEmbedded(t)
	a := s.do(t, "POST", "/token", "")
	issued := decode[wire.TokenIssued](t, a, 201)
	if left := time.Until(issued.ExpiresAt); left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("expires in %v", left)
	}
	if a.header.Get("Location") != "/token/"+issued.Token || a.header.Get("Cache-Control") != "no-store" || issued.Scope != "" {
		t.Errorf("%v %+v", a.header, issued)
	}
	status := must[wire.TokenStatus](t, s, 200, "GET", a.header.Get("Location"), "")
	if status.State != "issued" || status.Attempts != 0 || status.Fence != 0 || !status.LeaseUntil.IsZero() {
		t.Errorf("%+v", status)
	}
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
			t.Errorf("%.60s: %+v", body, granted)
		}
	}
}

func TestWorkerRequestAtItsBoundsIsGranted(t *testing.T) {
	s := onEmbedded(t)
	for i, row := range []struct {
		body, layout string
		ttl          int64
	}{
		{"", "41/10/12", 30_000},
		{`{"ttl_ms":100}`, "41/10/12", 100},
		{`{"ttl_ms":86400000,"identity":"` + strings.Repeat("i", 200) + `"}`, "41/10/12", 86_400_000},
		{`{"layout":"41/5/5/12","epoch":"1970-01-01T00:00:00Z"}`, "41/5/5/12", 30_000},
		{`{"layout":"32/20/11@s","epoch":"2024-02-29T12:00:00.125+02:00"}`, "32/20/11@s", 30_000},
		{`{"layout":"62/1/0"}`, "62/1/0", 30_000},
		{`{"layout":"62/1/0@s","epoch":null,"identity":null}`, "62/1/0@s", 30_000},
		{`{"layout":"41/01/02"}`, "41/1/2", 30_000},
	} {
		pool := "/worker/p" + string(rune('a'+i))
		a := s.do(t, "POST", pool, row.body)
		lease := decode[wire.WorkerLease](t, a, 201)
		if lease.Layout != row.layout || lease.TTL != row.ttl || lease.RenewEvery != row.ttl/3 || lease.NotAfter.Sub(lease.NotBefore).Milliseconds() != row.ttl {
			t.Errorf("%s: %+v", row.body, lease)
		}
		if a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", a.header)
		}
		if row.ttl < 1000 {
			continue // it may have ended already
		}
		must[wire.WorkerRenewed](t, s, 200, "PUT", pool+"/0", `{"ttl_ms":null}`, "Lease-Token: "+lease.Lease)
		must[nothing](t, s, 204, "DELETE", pool+"/0", "", "Lease-Token: "+lease.Lease)
	}
}
