package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// beyond is longer than what any route has after another one's path.
const beyond = "/livez/livez/livez"

// disguises are other ways to write a path, of which some server or other takes each for the path
// itself.
func disguises(path string) []string {
	rest := path[1:]
	first, last := strings.Index(rest, "/")+1, strings.LastIndex(path, "/")
	all := []string{
		path, "/" + path, "//" + path, "/." + path, "/./" + path, "/x/.." + path, "/livez/.." + path, "/console/../" + rest, "/problems/.." + path,
		"/%2e" + path, "/%2e/" + rest, "/x/%2e%2e" + path, "/x/%2E%2E/" + rest, "/livez%2f.." + path, "/x/..%2f" + rest, "/%2f" + rest, "/%2F" + rest, "/%5c" + rest, "/%252f" + rest, "/x/%252e%252e" + path,
		"/x/..;" + path, "/;" + path, "/;x=y" + path, path + ";", path + ";x=y", path + "%3b", path + "/", path + "//", path + "/.", path + "/..", path + "/%2e%2e/..", path + "%2f", path + "%2F..%2Flivez",
		path + "%00", path + "%00.css", path + "%0a", path + "%20", path + ".json", path + "?", path + "?x", path + "#", path + "%23", path + "%3f", path + "/livez", path + beyond, path + "/../../livez", path + "%2f..%2f..%2flivez",
		"/%c0%ae%c0%ae" + path, "/x%c0%af.." + path, "/%e0%80%af" + rest, "/x/%u002e%u002e" + path, "/\xff" + path, path + "\xff", path + "%ff", "\\" + rest, "/x\\.." + path, "/x\\..\\" + rest,
		strings.ToUpper(path), "/%" + hex(path[1]) + path[2:], path[:len(path)-1] + "%" + hex(path[len(path)-1]), strings.ReplaceAll(path, "/", "//"), "/" + strings.ReplaceAll(rest, "/", "%2f"), "/" + strings.ReplaceAll(rest, "/", "/./"),
		"http://elsewhere" + path, "http://x" + path, "https://x:443" + path, "http://user:pass@x" + path, "http://x//" + path, "http:" + path, "HTTP://LIVEZ" + path, "http://[::1]" + path, "ftp://x" + path,
		"/livez?" + path, "/livez#" + path, "*" + path, "/" + strings.Repeat("./", 2000) + rest, "/" + strings.Repeat("x/../", 2000) + rest, path + strings.Repeat("/", 8000), path + "/" + strings.Repeat("a", 30_000),
	}
	if first > 0 {
		all = append(all, path[:first]+";x"+path[first:], path[:first]+"%2f"+path[first+1:], path[:first]+"/x/.."+path[first:], path[:last]+"/livez/../"+path[last+1:])
	}
	return all
}

func hex(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// What a caller may do is decided on the path by which the handler is found: however a path is
// written, who may not ask for it gets nothing of it. One that goes on where a route ends is found
// by no handler, so that no caller is told what would be there.
func TestDisguisedPathsReachNoRouteThatTheCallerMayNotAskFor(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	g := serveKeyed(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Dev: true}, nil)
	g.as(t, "use", "POST", "/incr/orders:k", "")
	for _, path := range []string{"/lock/orders:l", "/worker/orders:p"} {
		g.as(t, "use", "POST", path, `{"ttl_ms":3600000}`).wantStatus(t, 201)
	}
	before := dump(t, redis.Client())
	open := map[string]string{} // what every caller may look at, by its body
	for _, path := range []string{"/", "/livez", "/problems/not-found", "/docs", "/openapi.yaml", "/console/"} {
		open[string(g.do(t, "GET", path, "").body)] = path
	}
	for _, route := range g.server.Routes() {
		path, name := fill(t, route)
		if strings.HasPrefix(path, "/tinyid/") {
			path, name = path+"?bizType=orders:t", "bizType"
		}
		var callers []string
		switch {
		case route.Method == http.MethodHead, isLeaf(path) && route.Method != http.MethodGet, strings.HasPrefix(path, "/tinyid/") && route.Method != http.MethodPost:
			continue // answered by the handler of another method
		case route.Role == access.Admin:
			callers = []string{"anonymous", "use"}
		case route.Role > access.None:
			callers = []string{"anonymous"}
		default:
			continue
		}
		if name != "" {
			callers = append(callers, "foreign") // whose names are others
		}
		for _, caller := range callers {
			g.tryDisguises(t, route, caller, path, open)
		}
	}
	expect.Equal(t, "all of Redis after the disguised requests", dump(t, redis.Client()), before)
}

// tryDisguises sends every disguise of a path on a connection of its own, as it stands.
func (g *keyed) tryDisguises(t *testing.T, route server.Route, caller, path string, open map[string]string) {
	t.Helper()
	header := strings.Join(append(g.bearer(caller), "Connection: close", "Host: x"), "\r\n")
	bare, query, _ := strings.Cut(path, "?")
	for _, disguise := range disguises(bare) {
		if query != "" {
			disguise += "?" + query
		}
		for _, a := range g.raw(t, route.Method+" "+disguise+" HTTP/1.1\r\n"+header+"\r\n\r\n") {
			switch {
			case strings.HasSuffix(disguise, beyond) && a.status != http.StatusNotFound:
				t.Errorf("%s by %s, a path that goes on after the route: %v; want status 404", route.Path, caller, a)
			case a.status >= 300 && a.status < 500 || a.status == 501 || a.status == 505:
			case refusal(bare, a) == "door":
			case a.status == 200 && open[string(a.body)] != "":
			default:
				t.Errorf("%s %s by %s: %v; want a refusal, or what every caller may see", route.Method, route.Path, caller, a)
			}
		}
	}
}

// A limited key's names are compared as the handler reads them: decoded once.
func TestDisguisedNamesAreNotThoseOfTheKey(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil) // the caller "own" has orders:* and default
	for _, name := range []string{
		"bills", "%62ills", "b%69lls", "orders", "Orders:1", "ORDERS%3A1", "orders%253A1", "default%3A", "default.", "default%20", "bills%2Forders:1", "orders:%2F..%2Fbills", "orders:/../bills", "orders:;/bills", "orders:%00bills",
		"bills?x=/orders:1", "bills;orders:1", "orders\u003a1/../bills", "%EF%BC%8Forders:1", "orders%EF%BC%9A1",
	} {
		for _, path := range []string{"/incr/", "/lock/", "/worker/"} {
			for _, a := range g.raw(t, "POST "+path+name+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+g.bearer("own")[0]+"\r\n\r\n") {
				if a.status < 400 || a.status > 499 {
					t.Errorf("%v; want a refusal", a)
				}
			}
		}
	}
	for _, name := range []string{"orders:1", "orders%3A1", "%6frders:1", "default"} {
		g.as(t, "own", "POST", "/incr/"+name, "").wantStatus(t, 200)
	}
}
