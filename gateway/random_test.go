package gateway

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// pieces are what random paths are made of, beside single bytes.
var pieces = []string{
	"/", "/", "/", "payments", "orders", "a", ".", "..", "%2e", "%2E%2e", "%2f", "%2F", "%5c", "\\", ";", "%3b", "%00", "%0a", "%7f", "%c3%a9", "%C3%A9", "%c0%af",
	"%ff", "%41", "%7E", "%25", "%2", "%", "%20", "%3F", "!", "$", "'", "(", ")", "*", "+", ",", "=", ":", "@", "~", "-", "_", "api", "x", "\u00e9", "[", "|", "\"", "?", "?q=%2f", "#",
}

func randomPath(random *rand.Rand) string {
	var path strings.Builder
	if random.IntN(10) > 0 {
		path.WriteByte('/')
	}
	for range random.IntN(8) {
		if random.IntN(20) == 0 {
			path.WriteByte(byte(random.IntN(256)))
		} else {
			path.WriteString(pieces[random.IntN(len(pieces))])
		}
	}
	return path.String()
}

// matchesLiterally reports whether a path is one that a pattern of the test names, segment by
// segment and letter by letter.
func matchesLiterally(pattern, path string) bool {
	names, segments := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, name := range names {
		if name == "{rest...}" {
			return len(segments) >= i+1
		}
		if i >= len(segments) {
			return false
		}
		decoded, err := url.PathUnescape(segments[i])
		if err != nil || name != "{id}" && decoded != name || name == "{id}" && decoded == "" {
			return false
		}
	}
	return len(names) == len(segments)
}

// Of 100,000 random requests (10,000 with -short), each one that is forwarded has a path in the
// plain form, below the upstream's, and its route names it letter by letter.
func TestWhatIsForwardedIsPlainAndNamed(t *testing.T) {
	const some = 10_000
	tries := 100_000
	if testing.Short() {
		tries = some
	}
	var came string
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		came = r.RequestURI
		w.WriteHeader(http.StatusCreated)
	})
	patterns := []string{"/payments", "/orders/{id}", "/x/{id}/a", "/orders/a/{rest...}", "/api"}
	r := start(t, upstream.URL+"/api", "routes: [{match: ['POST "+strings.Join(patterns, "', 'POST ")+"'], encoded: ['/'], guard: false}]", quiet)
	random, forwarded := rand.New(rand.NewPCG(47, 1)), 0
	for range tries {
		target, host := randomPath(random), []string{"x", "x:80", "X.", "h.example"}[random.IntN(4)]
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n")))
		if err != nil {
			continue // net/http refuses it
		}
		came = ""
		w := httptest.NewRecorder()
		r.g.ServeHTTP(w, request)
		if w.Code == http.StatusCreated != (came != "") {
			t.Fatalf("%q was answered %d, and the service got %q", target, w.Code, came)
		}
		if came == "" {
			continue
		}
		forwarded++
		path, _, _ := strings.Cut(came, "?")
		below, isBelow := strings.CutPrefix(path, "/api")
		plain, err := readPath(path)
		named := false
		for _, pattern := range patterns {
			named = named || matchesLiterally(pattern, below)
		}
		if !isBelow || err != nil || plain.text != path || !named {
			t.Fatalf("%q was forwarded as %q, want a plain path below /api that a route names: %v", target, came, err)
		}
	}
	expect.Equal(t, fmt.Sprint("forwarded requests, of ", tries, ": some"), forwarded > tries/1000, true)
	t.Logf("%d of %d were forwarded", forwarded, tries)
}
