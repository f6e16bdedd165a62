package frontdoor_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestRequestsThatAPageOfAnotherOriginSends(t *testing.T) {
	const shop = "https://shop.example"
	trusting := frontdoor.NewOrigins([]string{shop, "null", "nonsense"})
	for _, row := range []struct {
		site, origin      string // the header that a browser sends; "" = none
		foreign, trusting bool
	}{
		{"", "", false, false}, // no browser
		{"none", "", false, false},
		{"same-origin", "", false, false},
		{"same-origin", "http://127.0.0.1:8080", false, false},
		{"same-site", "", true, true},
		{"same-site", "http://127.0.0.1:3000", true, true},
		{"cross-site", "", true, true},
		{"cross-site", "https://evil.example", true, true},
		{"cross-site", "null", true, true},
		{"cross-site", shop, true, false},
		{"cross-site", "http://shop.example", true, true},
		{"cross-site", shop + ".evil.example", true, true},
		{"strange", "", true, true},
		{"", "http://127.0.0.1:8080", false, false},
		{"", "http://127.0.0.1:3000", true, true},
		{"", "https://evil.example", true, true},
		{"", "null", true, true},
		{"", shop, true, false},
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
			r := httptest.NewRequest(method, "http://127.0.0.1:8080/incr/k", nil)
			if row.site != "" {
				r.Header.Set("Sec-Fetch-Site", row.site)
			}
			if row.origin != "" {
				r.Header.Set("Origin", row.origin)
			}
			asked := fmt.Sprintf("%s with Sec-Fetch-Site %q and Origin %q", method, row.site, row.origin)
			expect.Equal(t, asked+" is foreign", frontdoor.NewOrigins(nil).Foreign(r), row.foreign)
			expect.Equal(t, asked+" is foreign, where "+shop+" is trusted", trusting.Foreign(r), row.trusting)
			expect.Equal(t, asked+": the method afterwards", r.Method, method)
		}
	}
	expect.Equal(t, "no origins are none", frontdoor.NewOrigins(nil).None() && !trusting.None(), true)
	expect.Equal(t, "origins that are trusted", fmt.Sprint(trusting.Has(shop), trusting.Has("null"), trusting.Has("https://evil.example")), "true false false")
}

func TestOperatorsSideRefusesWhatABrowserMayHaveBeenMadeToSend(t *testing.T) {
	h := frontdoor.ForOperators(func() frontdoor.Hosts { return frontdoor.Hosts{"ops.example"} }, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, row := range []struct {
		host, site string
		status     int
	}{
		{"127.0.0.1:9091", "", 204},
		{"127.0.0.1:9091", "none", 204},
		{"10.1.2.3:9091", "", 204},
		{"ops.example:9091", "", 204},
		{"evil.test:9091", "", 403},
		{"evil.test:9091", "same-origin", 403},
		{"127.0.0.1:9091", "cross-site", 403},
		{"localhost:9091", "same-site", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/heap", nil)
		r.Host = row.host
		if row.site != "" {
			r.Header.Set("Sec-Fetch-Site", row.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect.Equal(t, fmt.Sprintf("status of GET from a browser that says %q, Host %s", row.site, row.host), w.Code, row.status)
	}
}
