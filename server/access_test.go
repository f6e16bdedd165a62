package server_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// keyed is a service that asks who is asking, and keys of callers by name.
type keyed struct {
	*service
	keys   map[string]access.Key
	policy *access.Policy
}

// callers are those that every keyed service knows. The keys of those named foreign are good for
// names that no test asks for.
var callers = map[string]access.Record{
	"read": {Role: access.Read}, "use": {Role: access.Use}, "other": {Role: access.Use}, "admin": {Role: access.Admin},
	"foreign": {Role: access.Use, Names: access.Names{"foreign:*"}}, "foreign admin": {Role: access.Admin, Names: access.Names{"foreign:*"}},
	"own": {Role: access.Use, Names: access.Names{"orders:*", "default"}},
}

func serveKeyed(t *testing.T, config server.Config, more map[string]access.Record) *keyed {
	t.Helper()
	g := &keyed{keys: map[string]access.Key{}}
	var records []access.Record
	for _, known := range []map[string]access.Record{callers, more} {
		for name, record := range known {
			g.keys[name] = access.NewKey()
			record.ID, record.Hash = g.keys[name].ID, g.keys[name].Hash()
			if record.Principal == "" {
				record.Principal = strings.ReplaceAll(name, " ", "-")
			}
			records = append(records, record)
		}
	}
	g.keys["wrong"] = access.NewKey()
	var err error
	if g.policy, err = access.Open(t.Context(), access.Config{Keys: records}); err != nil {
		t.Fatalf("making the keys: %v", err)
	}
	t.Cleanup(g.policy.Close)
	config.Access = g.policy
	if config.Store == nil {
		config.Store = storetest.Open(t, redisstore.Config{})
	}
	g.service = serve(t, config)
	return g
}

// bearer is the header that shows a caller's key; none for a caller without a key.
func (g *keyed) bearer(caller string) []string {
	if caller == "anonymous" {
		return nil
	}
	return []string{"Authorization: Bearer " + g.keys[caller].Text()}
}

func (g *keyed) as(t *testing.T, caller, method, path, body string, header ...string) answer {
	t.Helper()
	return g.do(t, method, path, body, append(g.bearer(caller), header...)...)
}

// parameters are what paths are filled with. A route with a parameter that is not here fails the
// test, until it is said whether it is a name.
var parameters = map[string]struct {
	value string
	name  bool
}{
	"{key}": {"orders:k", true}, "{pool}": {"orders:p", true}, "{tag}": {"orders:t", true}, "{name}": {"orders:l", true},
	"{token}": {"t", false}, "{id}": {"1", false}, "{worker_id}": {"0", false}, "{code}": {"not-found", false}, "{file}": {"file", false}, "{operation}": {strings.Repeat("A", 32), false},
}

// fill makes a path of a route, and tells which parameter is a name.
func fill(t *testing.T, route server.Route) (path, name string) {
	t.Helper()
	segments := strings.Split(route.Path, "/")
	for i, segment := range segments {
		if !strings.HasPrefix(segment, "{") {
			continue
		}
		parameter, known := parameters[segment]
		if !known {
			t.Errorf("%s: say in this test what %s is, and whether it is a name that keys can be limited to", route.Path, segment)
		}
		segments[i] = parameter.value
		if parameter.name {
			name = strings.Trim(segment, "{}")
		}
	}
	return strings.TrimSuffix(strings.Join(segments, "/"), "*"), name
}

// head sends a request, and reads no more of the answer than a refusal has: some answers do not
// end.
func (g *keyed) head(t *testing.T, caller, method, path string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.addr, nil)
	expect.NoError(t, method+" "+path, err)
	request.URL = &url.URL{Scheme: "http", Host: g.addr, Opaque: path}
	for _, header := range g.bearer(caller) {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	if strings.HasSuffix(path, "/settle") { // without a lease it is an operator's
		request.Header.Set("Lease-Token", "of-a-resolver-or-not")
	}
	response, err := g.client.Do(request)
	expect.NoError(t, method+" "+path, err)
	defer response.Body.Close()
	got := answer{asked: caller + ": " + method + " " + path, status: response.StatusCode, header: response.Header}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		// what counts is there, or missing
		got.body, _ = io.ReadAll(io.LimitReader(response.Body, 4096))
	}
	return got
}

// refusal is what an answer refuses with: the problem's code, or what a door says in its place; ""
// if it lets the caller in.
func refusal(path string, a answer) api.Code {
	switch {
	case strings.HasPrefix(path, "/tinyid/") && strings.HasSuffix(path, "Simple"):
		if a.status == 200 && len(a.body) == 0 {
			return "door"
		}
	case strings.HasPrefix(path, "/tinyid/"):
		if a.status == 200 && strings.Contains(string(a.body), `"code":5,"message":"token is error"`) {
			return "door"
		}
	case isLeaf(path):
		text := string(a.body)
		if a.status == 500 && strings.Contains(text, "LeafServerException") && (strings.Contains(text, "not known") || strings.Contains(text, "Refused") || strings.Contains(text, "id=-2,")) {
			return "door"
		}
	case a.status == 401:
		return api.Unauthorized
	case a.status == 403:
		return api.Forbidden
	}
	return ""
}

func isLeaf(path string) bool {
	return strings.HasPrefix(path, "/api/") || slices.Contains([]string{"/decodeSnowflakeId", "/cache", "/db"}, path)
}

// Every route of the server's own table, by every kind of caller.
func TestEveryRouteByEveryRole(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{Dev: true, IDPool: "default", RequestTimeout: patience}, nil)
	routes := g.server.Routes()
	if len(routes) < 60 {
		t.Errorf("got %d routes, want 60 or more: is this the whole table?", len(routes))
	}
	roles := map[string]access.Role{"anonymous": access.None, "wrong": access.None, "read": access.Read, "use": access.Use, "admin": access.Admin}
	for _, route := range routes {
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			path, name := fill(t, route)
			asked := path
			if strings.HasPrefix(path, "/tinyid/") {
				asked, name = path+"?bizType=orders:t", "bizType"
			}
			door := isLeaf(path) || strings.HasPrefix(path, "/tinyid/")
			for caller, role := range roles {
				want := api.Code("")
				switch {
				case role >= route.Role:
				case door:
					want = "door"
				case role == access.None:
					want = api.Unauthorized
				default:
					want = api.Forbidden
				}
				g.check(t, route, asked, caller, want)
			}
			want := api.Code("")
			switch {
			case name == "" || route.Role == access.None:
			case door:
				want = "door"
			default:
				want = api.Forbidden
			}
			foreign := "foreign"
			if route.Role == access.Admin {
				foreign = "foreign admin"
			}
			if name != "" {
				g.check(t, route, asked, foreign, want)
			}
		})
	}
}

func (g *keyed) check(t *testing.T, route server.Route, path, caller string, want api.Code) {
	t.Helper()
	g.keys["wrong"] = access.NewKey() // each is another guess
	a := g.head(t, caller, route.Method, path)
	plain, _, _ := strings.Cut(path, "?")
	got := refusal(plain, a)
	if route.Method == http.MethodHead && (isLeaf(plain) || strings.HasPrefix(plain, "/tinyid/")) {
		return // without a body it cannot be told what is refused
	}
	if got != want {
		t.Errorf("%v; refused as %q, want %q", a, got, want)
		return
	}
	challenge := a.header.Values("WWW-Authenticate")
	switch {
	case want == "" || want == "door":
		if len(challenge) > 0 && a.status != 401 && a.status != 403 {
			t.Errorf("%v; want no WWW-Authenticate, got %q", a, challenge)
		}
	case route.Method == http.MethodHead:
	case want == api.Unauthorized:
		checkProblem(t, a, want)
		bearer := `Bearer realm="coatcheck"`
		if caller == "wrong" {
			bearer += `, error="invalid_token"`
		}
		expect.Equal(t, a.asked+": WWW-Authenticate", challenge, []string{bearer})
	default:
		problem := checkProblem(t, a, want)
		if problem.Field == "role" && !strings.Contains(challenge[0], `error="insufficient_scope", scope="`+route.Role.String()+`"`) {
			t.Errorf("%v; want a WWW-Authenticate of insufficient_scope with scope %s, got %q", a, route.Role, challenge)
		}
		if strings.HasPrefix(caller, "foreign") && (problem.Field == "" || problem.Field == "role") {
			t.Errorf("%v; want the name that is not the caller's for a field, got %q", a, problem.Field)
		}
	}
}

func TestKeyComesInTwoWaysAndOnce(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	good, bad := g.keys["use"].Text(), g.keys["wrong"].Text()
	for _, row := range []struct {
		header []string
		bearer string // the error of RFC 6750; "" = let in
	}{
		{[]string{"Authorization: Bearer " + good}, ""},
		{[]string{"Authorization: bearer " + good}, ""},
		{[]string{"X-API-Key: " + good}, ""},
		{[]string{"X-API-Key: " + bad}, "invalid_token"},
		{[]string{"Authorization: Bearer " + good + "x"}, "invalid_token"},
		{[]string{"Authorization: Bearer " + strings.ToUpper(good)}, "invalid_token"},
		{[]string{"Authorization: Bearer"}, "invalid_request"},
		{[]string{"Authorization: " + good}, "invalid_request"},
		{[]string{"Authorization: Basic dTpw"}, "invalid_request"},
		{[]string{"X-API-Key: "}, "invalid_request"},
		{[]string{"Authorization: Bearer " + good, "X-API-Key: " + good}, "invalid_request"},
		{[]string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, "invalid_request"},
		{[]string{"X-API-Key: " + good, "X-API-Key: " + bad}, "invalid_request"},
		{[]string{"Cookie: Authorization=" + good}, "none"},
	} {
		a := g.do(t, "POST", "/incr/k", "", row.header...)
		challenge := a.header.Get("WWW-Authenticate")
		switch row.bearer {
		case "":
			a.wantStatus(t, 200)
			a.wantHeader(t, "WWW-Authenticate", "")
		case "none":
			checkProblem(t, a, api.Unauthorized)
		default:
			checkProblem(t, a, api.Unauthorized)
			expect.Contains(t, a.asked+": WWW-Authenticate", challenge, `error="`+row.bearer+`"`)
		}
		if strings.Contains(string(a.body)+challenge, g.keys["use"].Secret[:40]) {
			t.Errorf("%v; the answer holds the key, want none of it", a)
		}
	}
	g.do(t, "GET", "/counter/k?api_key="+good, "").wantStatus(t, 401)
}

// A token belongs to the principal of the key that it was issued with: two keys of one principal
// share it, others do not.
func TestPrincipalOfTheKeyOwnsTokensAndKeys(t *testing.T) {
	g := serveKeyed(t, server.Config{Dev: true}, map[string]access.Record{
		"blue": {Role: access.Use, Principal: "shop"}, "green": {Role: access.Use, Principal: "shop"}, "bills": {Role: access.Use},
	})
	token := decode[api.TokenIssued](t, g.as(t, "blue", "POST", "/token", ""), 201).Token
	for caller, status := range map[string]int{"blue": 200, "green": 200, "bills": 410, "admin": 410} {
		a := g.as(t, caller, "GET", "/token/"+token, "")
		a.asked += " by " + caller
		a.wantStatus(t, status)
	}
	pay := func(caller string) answer { return g.as(t, caller, "POST", "/payments", payment, "Idempotency-Key: k") }
	first, again, other := pay("blue"), pay("green"), pay("bills")
	first.wantStatus(t, 201)
	wantReplay(t, again, first) // by another key of the same principal
	other.wantStatus(t, 201)
	if string(other.body) == string(first.body) {
		t.Errorf("%v; another principal got the answer of the first", other)
	}
}

func TestRouteWithoutARolePanicsAtTheStart(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "GET /forgotten says no role") {
			t.Errorf("a service with a route without a role: got panic %q, want one that names GET /forgotten", text)
		}
	}()
	server.WithForgottenRoute()
}

func TestLogTellsThePrincipalAndNoKey(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	g.as(t, "use", "POST", "/incr/k", "", "X-Request-Id: one")
	g.as(t, "wrong", "POST", "/incr/k", "", "X-Request-Id: two")
	g.do(t, "GET", "/tinyid/id/nextId?bizType=t&token="+g.keys["use"].Text(), "", "X-Request-Id: three")
	g.do(t, "POST", "/incr/"+g.keys["use"].Text(), "", "X-Request-Id: four")
	expect.Contains(t, "the log of POST /incr/k by use", g.logLine(t, "msg=request", "request_id=one"), " principal=use ")
	for name, key := range g.keys {
		if strings.Contains(g.log.String(), key.Secret) || name == "wrong" && strings.Contains(g.log.String(), key.ID) {
			t.Errorf("the key of %s is in the log:\n%s", name, g.log)
		}
	}
}
