package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What a route does not know in the query is refused on every route, so that ?ttl_ms=1000 is no
// silent day; monitors may add what they like.
func TestQueryParametersThatARouteDoesNotKnow(t *testing.T) {
	s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // nothing is under way
	service := apitest.Handler(t, s.Handler())
	for _, row := range []struct {
		method, target string
		want           int
	}{
		{"POST", "/token?ttl_ms=1000", 400},
		{"GET", "/token/x?a=1", 400},
		{"POST", "/token/x/claim?a=1", 400},
		{"POST", "/worker/p?ttl_ms=1000", 400},
		{"PUT", "/worker/p/0?ttl_ms=1000", 400},
		{"POST", "/payments?amount=1", 400},
		{"GET", "/payments?n=1", 400},
		{"GET", "/incr/k?by=1&by=2", 400},
		{"GET", "/incr/k?by=01", 400},
		{"GET", "/incr/k?by=%2B1", 400},
		{"GET", "/incr/k?by=1", 200},
		{"GET", "/livez?probe=1", 200},
		{"HEAD", "/livez", 200},
		{"HEAD", "/readyz?a&b;c", 200},
	} {
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequest(row.method, "http://localhost"+row.target, strings.NewReader("")))
		asked := row.method + " " + row.target
		expect.Equal(t, asked+": status", w.Code, row.want)
		if row.want == http.StatusBadRequest {
			expect.Contains(t, asked, w.Body.String(), `"code":"invalid-request"`)
		}
	}
}
