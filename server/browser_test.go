package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// under asks for a path under a name, and returns the status of the answer.
func under(t *testing.T, s *service, host, path string, header ...string) int {
	t.Helper()
	answers := s.raw(t, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n"+strings.Join(append(header, "\r\n"), "\r\n"))
	if len(answers) != 1 {
		t.Fatalf("GET %s under %s: got %d answers, want 1", path, host, len(answers))
	}
	if answers[0].status == http.StatusForbidden {
		checkProblem(t, answers[0], api.Forbidden)
	}
	return answers[0].status
}

// Under DNS rebinding the page of an attacker is of the service's own origin, but has its own name
// as Host. A service that asks for no key does not answer under it, whatever the route.
func TestServiceWithoutKeysAnswersUnderItsOwnNamesAlone(t *testing.T) {
	t.Parallel()
	unnamed := onEmbedded(t)
	named := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), AllowedHosts: []string{"coatcheck.internal"}})
	for _, path := range []string{"/counter", "/incr/k", "/console/", "/console/api/session", "/openapi.yaml", "/livez", "/readyz", "/", "/nope", "/api/segment/get/k"} {
		for host, status := range map[string]int{"evil.test": 403, "evil.test:8080": 403, "localhost.evil.test": 403} {
			expect.Equal(t, "status of GET "+path+" under "+host, under(t, unnamed, host, path), status)
			expect.Equal(t, "status of GET "+path+" under "+host+", where others are allowed", under(t, named, host, path), status)
		}
	}
	for host, want := range map[string]struct{ unnamed, named int }{
		"localhost:8080": {200, 200}, "a.localhost": {200, 200}, "127.0.0.1": {200, 200}, "[::1]:80": {200, 200}, "10.1.2.3:8080": {200, 200},
		"coatcheck.internal": {403, 200}, "other.internal": {403, 403},
	} {
		expect.Equal(t, "status of GET /counter under "+host, under(t, unnamed, host, "/counter"), want.unnamed)
		expect.Equal(t, "status of GET /counter under "+host+", where coatcheck.internal is allowed", under(t, named, host, "/counter"), want.named)
	}
	expect.Equal(t, "status under a name that is allowed no more", func() int {
		named.server.SetAllowedHosts(nil)
		return under(t, named, "coatcheck.internal", "/counter")
	}(), 403)
	checkProblem(t, unnamed.do(t, "GET", "/counter/k", ""), api.NotFound) // nothing was counted
}

func TestServiceWithKeysAnswersUnderEveryNameUnlessSomeAreSet(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	named := serveKeyed(t, server.Config{AllowedHosts: []string{"*.internal"}}, nil)
	for host, want := range map[string]struct{ free, named int }{"shop.example": {200, 403}, "a.internal": {200, 200}, "127.0.0.1": {200, 200}} {
		expect.Equal(t, "status of GET /counter under "+host, under(t, g.service, host, "/counter", g.bearer("read")...), want.free)
		expect.Equal(t, "status of GET /counter under "+host+", where *.internal is allowed", under(t, named.service, host, "/counter", named.bearer("read")...), want.named)
	}
}

// A page of another origin may have a browser look, since it does not see the answer; nothing that
// it asks for is written, leased or handed out.
func TestPageOfAnotherOriginChangesAndTakesNothing(t *testing.T) {
	t.Parallel()
	const shop = "https://shop.example"
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), CORSOrigins: []string{shop}, Dev: true})
	// the origin that is trusted gets headers that the document has for it alone
	s.client = newClient(t)
	fill := strings.NewReplacer("{key}", "k", "{token}", "t", "{pool}", "default", "{tag}", "k", "{name}", "n", "{worker_id}", "0", "{id}", "1", "{code}", "forbidden", "{file}", "style.css")
	for _, route := range s.server.Routes() {
		looks := (route.Method == http.MethodGet || route.Method == http.MethodHead) && route.Role < access.Use && route.Path != "/events"
		for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: null"} {
			a := s.do(t, route.Method, fill.Replace(route.Path), "", header)
			expect.Equal(t, fmt.Sprintf("%s, answered %d: it is refused", a.asked, a.status), a.status == http.StatusForbidden, !looks)
		}
	}
	for header, status := range map[string]int{
		"Sec-Fetch-Site: same-origin": 200, "Sec-Fetch-Site: none": 200, "Origin: http://" + s.addr: 200, "Origin: " + shop: 200, "X-Other: x": 200,
		"Origin: http://shop.example": 403,
	} {
		s.do(t, "GET", "/incr/k", "", header).wantStatus(t, status)
		s.do(t, "POST", "/incr/k", "", header).wantStatus(t, status)
	}
	s.do(t, "GET", "/incr/k", "", "Sec-Fetch-Site: cross-site", "Origin: "+shop).wantStatus(t, 200)
	counted := must[api.Counter](t, s, 200, "GET", "/counter/k", "")
	expect.Equal(t, "the counter after all of that", counted.Value, 11)
	s.server.SetCORSOrigins(nil)
	refused := s.do(t, "POST", "/incr/k", "", "Origin: "+shop)
	checkProblem(t, refused, api.Forbidden)
	expect.Contains(t, refused.asked, string(refused.body), "--cors-origins")
}

// Keys do not make a page of another origin better: any browser gets what needs none, and a browser
// shows a client certificate unasked.
func TestPageOfAnotherOriginIsRefusedWhereKeysAreAskedForAsWell(t *testing.T) {
	t.Parallel()
	book := openPolicy(t, filepath.Join(t.TempDir(), "keys.yaml"), "anonymous: {role: use}\n")
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: book})
	s.do(t, "GET", "/incr/k", "").wantStatus(t, 200)
	checkProblem(t, s.do(t, "GET", "/incr/k", "", "Sec-Fetch-Site: cross-site"), api.Forbidden)
	checkProblem(t, s.do(t, "POST", "/lock/k", "{}", "Origin: https://evil.example"), api.Forbidden)
}

func TestAdminSideRefusesWhatABrowserMayHaveBeenMadeToSend(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{Debug: http.NotFoundHandler(), AllowedHosts: []string{"ops.internal"}}, nil)
	for _, row := range []struct {
		host, site string
		status     int
	}{
		{"127.0.0.1:9091", "", 200},
		{"localhost:9091", "none", 200},
		{"ops.internal", "", 200},
		{"evil.test", "same-origin", 403},
		{"localhost:9091", "cross-site", 403},
	} {
		for _, path := range []string{"/livez", "/metrics"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Host = row.host
			if row.site != "" {
				r.Header.Set("Sec-Fetch-Site", row.site)
			}
			w := httptest.NewRecorder()
			g.server.Admin().ServeHTTP(w, r)
			expect.Equal(t, fmt.Sprintf("status of GET %s under %s with Sec-Fetch-Site %q", path, row.host, row.site), w.Code, row.status)
		}
	}
}
