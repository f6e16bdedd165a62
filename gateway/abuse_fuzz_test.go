package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
)

// Whatever requests a client sends, the upstream gets no more than came, each in a form that all
// parsers read in the same way, none for a guarded path, and with the true address of its client.
func FuzzRequests(f *testing.F) {
	for _, form := range doubtful {
		f.Add("POST /guarded HTTP/1.1\r\nHost: x\r\n" + form.rest)
		f.Add("POST /open HTTP/1.1\r\nHost: x\r\n" + form.rest)
	}
	for _, text := range []string{
		"POST /x/..;/guarded HTTP/1.1\r\nHost: x\r\n\r\n", "post /\\guarded HTTP/1.0\r\n\r\n", "GET http://y/open HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nx_forwarded_for: 6.6.6.6\r\n\r\n",
		"GET /open HTTP/1.1\r\nHost: x\r\nConnection: X-Forwarded-For, upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "POST /open HTTP/1.1\r\nHost: x\r\nHost_: y\r\nTransfer_Encoding: chunked\r\n\r\n",
	} {
		f.Add(text)
	}
	upstream := newScribe(f)
	r := start(f, upstream.url, `routes: [{match: /guarded}, {match: /, guard: false}]`)
	var asked atomic.Int64
	seen := map[string]int{} // how often the upstream saw a request, by its id
	f.Fuzz(func(t *testing.T, text string) {
		reader := bufio.NewReader(strings.NewReader(text))
		for {
			request, err := http.ReadRequest(reader)
			if err != nil {
				break
			}
			request.RemoteAddr = "127.0.0.1:1"
			request.Header.Set("X-Request-Id", fmt.Sprint("id-", asked.Add(1)))
			r.g.ServeHTTP(httptest.NewRecorder(), request.WithContext(t.Context()))
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				break
			}
		}
		heads, uris := upstream.take()
		for i, head := range heads {
			checkPlain(t, text, head)
			target, err := url.ParseRequestURI(uris[i])
			if err == nil && path.Clean("/"+target.Path) == "/guarded" {
				t.Errorf("%q passed the guard as %q, want it refused without a key", text, uris[i])
			}
			for line := range strings.SplitSeq(head, "\r\n") {
				name, value, _ := strings.Cut(line, ": ")
				if name == "X-Request-Id" {
					seen[value]++
				}
				if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "X-Forwarded-For") && value != "127.0.0.1" || strings.EqualFold(name, "Forwarded") {
					t.Errorf("%q: the upstream was told %q, want the client's true address, 127.0.0.1", text, line)
				}
			}
		}
		for id, times := range seen {
			if times > 1 || !strings.HasPrefix(id, "id-") {
				t.Errorf("%q: the upstream saw the request %s %d times, want one that was asked, once", text, id, times)
			}
		}
	})
}
