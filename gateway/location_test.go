package gateway

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestReferencesToTheUpstreamArePathsOfTheGateway(t *testing.T) {
	for _, row := range []struct{ upstream, sent, text, want string }{
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "http://10.0.0.1:3000/pay/", "/pay/"},
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "http://10.0.0.1:3000/pay?a=1#b", "/pay?a=1#b"},
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "//10.0.0.1:3000/pay", "/pay"},
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "http://10.0.0.1:3000", "/"},
		{"https://app:443", "app:443", "//app/pay", "/pay"},
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "http://10.0.0.1:3000//evil.example/x", "/evil.example/x"},
		{"http://App", "app", "http://APP:80/pay", "/pay"},
		{"https://app", "app", "https://app:443/pay", "/pay"},
		{"http://app", "shop.example", "http://shop.example/pay", "/pay"}, // --preserve-host
		{"http://app", "app", "https://other.example/pay", "https://other.example/pay"},
		{"http://app", "app", "/pay/", "/pay/"},
		{"http://app", "app", "pay/", "pay/"},
		{"http://app", "app", "mailto:a@b", "mailto:a@b"},
		{"http://app/api", "app", "/api/pay", "/pay"},
		{"http://app/api", "app", "http://app/api/pay", "/pay"},
		{"http://app/api", "app", "http://app/apix/pay", "/apix/pay"},
		{"http://app/api", "app", "http://app/api", "/"},
		{"http://app/api", "app", "/apix", "/apix"},
		{"http://app/api/", "app", "/api/pay", "/pay"},
		{"http://app", "app", "http://app/%2f%41?%zz", "/%2f%41?%zz"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://localhost:3000/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://LocalHost.:3000/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://[::1]:3000/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "//[0:0:0:0:0:0:0:1]:3000/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://[::ffff:127.0.0.1]:3000/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://app.localhost:3000/pay/", "/pay/"},
		{"http://localhost:3000", "localhost:3000", "http://127.0.0.1:3000/pay/", "/pay/"},
		{"http://[::1]:3000", "[::1]:3000", "http://localhost:3000/pay/", "/pay/"},
		{"http://127.0.0.1", "127.0.0.1", "http://localhost/pay/", "/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://localhost:3001/pay/", "http://localhost:3001/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://localhost/pay/", "http://localhost/pay/"},
		{"http://127.0.0.1:3000", "127.0.0.1:3000", "http://app:3000/pay/", "http://app:3000/pay/"},
		// an app of the client's own machine, as that of RFC 8252
		{"http://10.0.0.1:3000", "10.0.0.1:3000", "http://127.0.0.1:3000/callback", "http://127.0.0.1:3000/callback"},
		{"unix:///run/app.sock", "localhost", "http://localhost/pay/", "/pay/"},
		{"unix:///run/app.sock", "localhost", "http://127.0.0.1/pay/", "http://127.0.0.1/pay/"},
		{"http://app.", "app.", "http://app:/pay/", "/pay/"},
		{"http://[fe80::0:1]:80", "[fe80::0:1]", "http://[FE80::1]/pay/", "/pay/"},
		{"http://app:80", "app", "http://app:80/pay/", "/pay/"},
		// as Django's SECURE_SSL_REDIRECT
		{"http://app:8080", "app:8080", "HTTPS://APP:8080/pay/", "https://client.example/pay/"},
		{"http://10.0.0.1:3000", "shop.example", "https://shop.example/pay/", "https://client.example/pay/"},
		{"https://app", "app", "http://app:443/pay", "/pay"}, // the client's own scheme
		{"http://app/api", "app", "https://app/api/pay", "https://client.example/pay"},
	} {
		upstream, err := ParseUpstream(row.upstream)
		expect.Error(t, row.upstream, err, nil)
		answer := &http.Response{Header: http.Header{"Location": {row.text}}, Request: &http.Request{Host: row.sent, Header: http.Header{"X-Forwarded-Proto": {"http"}}}}
		upstream.outside(answer, "client.example")
		expect.Equal(t, row.text+" from "+row.upstream, answer.Header.Get("Location"), row.want)
	}
}

// A client that follows a Location stays at the gateway: its key guards it there, where the route
// says that a redirection frees it.
func TestFollowedLocationStaysAtTheGateway(t *testing.T) {
	for i, preserve := range []bool{false, true} {
		var own string
		upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/payments" {
				at := own
				if preserve {
					at = "http://" + r.Host
				}
				w.Header().Set("Content-Location", at+"/payments")
				http.Redirect(w, r, at+"/payments/", http.StatusTemporaryRedirect)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("paid"))
		})
		own = upstream.URL
		r := start(t, upstream.URL, "routes: [{match: [POST /payments, POST /payments/], frees: [307]}]", func(c *Config) { c.PreserveHost = preserve })
		key := "Idempotency-Key: " + strconv.Itoa(i)
		r.wantPaid(r.do("POST", "/payments", "x", key), "paid", false)
		r.wantPaid(r.do("POST", "/payments/", "x", key), "paid", true)
		r.wantCode(r.do("POST", "/payments", "x", key), api.PayloadMismatch) // another path
		upstream.wantPaid(t, 2)                                              // the redirect is one
	}
}
