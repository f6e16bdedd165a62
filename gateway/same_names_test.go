package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/target"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The route of a request is the scope of its key, and its path as spelled here is in its
// fingerprint: what package idempotency makes of both is fixed there.
func TestRoutesAndPathsInNamesAreFixed(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, "routes: [{match: POST /payments}, {match: 'POST /Orders/{id}'}, {match: 'POST /orders/{id}/pay/'}, {match: POST /files/},"+
		" {match: POST /exact, trailing_slash: false, ignore_case: false, format_suffix: false}]")
	for sent, want := range map[string]string{
		"/payments":           "POST /payments /payments",
		"/payments/":          "POST /payments /payments",
		"/payments?x=%2f":     "POST /payments /payments?x=%2f",
		"/Payments.json?a":    "POST /payments /payments?a",
		"/orders/a%2Fb^c":     "POST /Orders/{id} /Orders/a%2Fb^c",
		"/orders/a%2fb%5Ec":   "POST /Orders/{id} /Orders/a%2fb%5Ec",
		"/ORDERS/Ä/":          "POST /Orders/{id} /Orders/Ä",
		"/orders/1/PAY":       "POST /orders/{id}/pay/ /orders/1/pay",
		"/orders/../orders/1": "POST /Orders/{id} /Orders/../orders/1",
		"//payments":          "POST /payments //payments",
		"/files/a/./b.json":   "POST /files/ /files/a/./b.json",
		"/exact":              "POST /exact /exact",
	} {
		request := httptest.NewRequest(http.MethodPost, "http://shop.example"+sent, nil)
		request.RequestURI = sent
		request = asWritten(request)
		route := r.g.routes.Load().match(request)
		if route == nil {
			t.Errorf("%s: no route guards it", sent)
			continue
		}
		expect.SameName(t, names.Version, "the route and the path of "+sent, route.Name+" "+target.Of(route.oneSpelling(request)), want)
	}
}
