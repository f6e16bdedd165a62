package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/target"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The key space of a request is part of its operation's name, and its path in the plain form of its
// fingerprint: what package idempotency makes of both is fixed there.
func TestKeySpacesAndPathsInNamesAreFixed(t *testing.T) {
	r := start(t, newShop(t, nil).URL, "routes: [{match: POST /payments}, {match: 'POST /orders/{id}', keys: orders, encoded: ['/']}, {match: POST /files/}]")
	for sent, want := range map[string]string{
		"/payments":        "* /payments",
		"/payments?x=%2f":  "* /payments?x=%2f",
		"/orders/a%2Fb":    "orders /orders/a%2Fb",
		"/orders/%c3%a4?a": "orders /orders/%C3%A4?a",
		"/files/a/b.json":  "* /files/a/b.json",
	} {
		request := httptest.NewRequest(http.MethodPost, "http://shop.example"+sent, nil)
		request.RequestURI = sent
		plain, _, err := plainly(request)
		expect.MustEqual(t, sent+": why it is not plain", err, nil)
		route := r.g.routes.Load().find(plain)
		if route == nil {
			t.Errorf("%s: no route names it", sent)
			continue
		}
		expect.SameName(t, names.Version, "the key space and the path of "+sent, route.Keys+" "+target.Of(plain), want)
	}
}
