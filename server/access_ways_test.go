package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, "making the authority's key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, "making the authority's certificate", err)
	cert, err := x509.ParseCertificate(der)
	expect.NoError(t, "reading the authority's certificate", err)
	return authority{cert, key}
}

func (a authority) sign(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, "making a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	expect.NoError(t, fmt.Sprintf("signing a certificate of %q", names), err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Who shows a client certificate that is known is its principal; a key that is shown beside it
// counts before it.
func TestClientCertificateIsAPrincipal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	key := access.NewKey()
	text := "keys:\n- {id: " + key.ID + ", sha256: " + key.Hash().String() + ", principal: bills, role: admin}\ncertificates:\n- {dns: orders.internal, principal: orders, role: use, prefixes: [\"orders:*\"]}\n"
	policy := openPolicy(t, file, text)
	ours := newAuthority(t)
	service := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: policy})
	t.Cleanup(func() { _ = service.Close(context.Background()) }) // nothing is under way
	web := httptest.NewUnstartedServer(service.Handler())
	web.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: x509.NewCertPool()}
	web.TLS.ClientCAs.AddCert(ours.cert)
	web.StartTLS()
	t.Cleanup(web.Close)
	for _, row := range []struct {
		name   string
		cert   *tls.Certificate
		header string
		path   string
		status int
	}{
		{"known", new(ours.sign(t, "orders.internal")), "", "/incr/orders:1", 200},
		{"known, a foreign name", new(ours.sign(t, "orders.internal")), "", "/incr/bills:1", 403},
		{"unknown", new(ours.sign(t, "bills.internal")), "", "/incr/orders:1", 401},
		{"none", nil, "", "/incr/orders:1", 401},
		{"known, with a key", new(ours.sign(t, "orders.internal")), key.Text(), "/incr/bills:1", 200},
		{"known, with a wrong key", new(ours.sign(t, "orders.internal")), access.NewKey().Text(), "/incr/orders:1", 401},
		{"known, open to all", new(ours.sign(t, "orders.internal")), "", "/livez", 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			trust := x509.NewCertPool()
			trust.AddCert(web.Certificate())
			config := &tls.Config{RootCAs: trust}
			if row.cert != nil {
				config.Certificates = []tls.Certificate{*row.cert}
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			defer client.CloseIdleConnections()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+row.path, nil)
			expect.NoError(t, "GET "+row.path, err)
			if row.header != "" {
				request.Header.Set("X-Api-Key", row.header)
			}
			response, err := client.Do(request)
			expect.NoError(t, "GET "+row.path, err)
			response.Body.Close()
			expect.Equal(t, "GET "+row.path+": status", response.StatusCode, row.status)
		})
	}
}

func TestNobodyMayWhatTheFileSays(t *testing.T) {
	t.Parallel()
	policy := openPolicy(t, filepath.Join(t.TempDir(), "keys.yaml"), "anonymous: {role: read, prefixes: [\"public:*\"]}\n")
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: policy})
	for path, code := range map[string]api.Code{"/counter/public:1": api.NotFound, "/counter/orders": api.Forbidden, "/incr/public:1": api.Unauthorized} {
		checkProblem(t, s.do(t, "GET", path, ""), code)
	}
	checkProblem(t, s.do(t, "GET", "/counter/public:1", "", "X-API-Key: "+access.NewKey().Text()), api.Unauthorized)
}

func TestKeyThatMayBeInAStoreThatWasNotReadIsNotCalledWrong(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})
	redis.Kill()
	policy, err := access.Open(t.Context(), access.Config{Store: store})
	expect.NoError(t, "opening the keys of a store that is away", err)
	t.Cleanup(policy.Close)
	s := serve(t, server.Config{Store: store, Access: policy})
	checkProblem(t, s.do(t, "GET", "/id/uuid", "", "X-API-Key: "+access.NewKey().Text()), api.StoreUnavailable)
}

// A client of tinyid shows its token of old, which is good for its tag alone, or an API key in the
// token's place.
func TestTinyidTokensAndKeys(t *testing.T) {
	g := serveKeyed(t, server.Config{TinyidTokens: []server.TinyidToken{{BizType: "orders:t", Token: "secret"}}}, nil)
	for query, code := range map[string]string{
		"bizType=orders:t&token=secret":                      "200",
		"bizType=orders:u&token=secret":                      "5",
		"bizType=orders:t&token=wrong":                       "5",
		"bizType=orders:t":                                   "5",
		"bizType=orders:t&token=" + g.keys["own"].Text():     "200",
		"bizType=bills:t&token=" + g.keys["own"].Text():      "5",
		"bizType=bills:t&token=" + g.keys["use"].Text():      "200",
		"bizType=orders:t&token=" + g.keys["read"].Text():    "5",
		"bizType=orders:t&token=" + g.keys["foreign"].Text(): "5",
		"bizType=orders:t&token=" + access.NewKey().Text():   "5",
		"bizType=&token=" + g.keys["use"].Text():             "5",
	} {
		for _, a := range []answer{g.do(t, "GET", "/tinyid/id/nextId?"+query, ""), g.do(t, "POST", "/tinyid/id/nextSegmentId", query, "Content-Type: application/x-www-form-urlencoded")} {
			a.wantStatus(t, 200)
			expect.Contains(t, a.asked, string(a.body), `"code":`+code+`,`)
		}
	}
}

func TestPagesOfOtherOrigins(t *testing.T) {
	const shop, evil = "https://shop.example", "https://evil.example"
	preflight := func(s *service, origin string) answer {
		return s.do(t, "OPTIONS", "/incr/k", "", "Origin: "+origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
	}
	g := serveKeyed(t, server.Config{CORSOrigins: []string{shop}}, nil)
	g.client = newClient(t) // what browsers ask ahead is no part of the documented interface
	a := preflight(g.service, shop)
	a.wantStatus(t, 204)
	a.wantHeader(t, "Access-Control-Allow-Origin", shop)
	a.wantHeader(t, "Access-Control-Allow-Credentials", "")
	expect.Contains(t, a.asked+": Access-Control-Allow-Headers", a.header.Get("Access-Control-Allow-Headers"), "Authorization", "Prefer")
	expect.Contains(t, a.asked+": Access-Control-Allow-Methods", a.header.Get("Access-Control-Allow-Methods"), "POST")
	preflight(g.service, evil).wantHeader(t, "Access-Control-Allow-Origin", "")
	a = g.as(t, "use", "POST", "/incr/k", "", "Origin: "+shop)
	a.wantStatus(t, 200)
	a.wantHeader(t, "Access-Control-Allow-Origin", shop)
	expect.Contains(t, a.asked+": Access-Control-Expose-Headers", a.header.Get("Access-Control-Expose-Headers"), "Retry-After",
		"Idempotent-Body", "Link")
	expect.Equal(t, a.asked+": has a Vary", a.header.Get("Vary") != "", true)
	refused := g.do(t, "POST", "/incr/k", "", "Origin: "+shop)
	refused.wantStatus(t, 401)
	refused.wantHeader(t, "Access-Control-Allow-Origin", shop) // or the page could not read it
	g.as(t, "use", "POST", "/incr/k", "", "Origin: "+evil).wantHeader(t, "Access-Control-Allow-Origin", "")
	off := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	off.client = newClient(t)
	preflight(off, shop).wantHeader(t, "Access-Control-Allow-Origin", "")
	off.do(t, "POST", "/incr/k", "", "Origin: "+shop).wantHeader(t, "Access-Control-Allow-Origin", "")
}
