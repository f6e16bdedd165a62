package gateway

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The gateway guesses no type that the service has not given: neither for a first answer, nor for a
// replay, nor for what it passes on. A browser would take a guess for the service's word.
func TestTypeOfAnAnswerIsTheServicesAndNeverGuessed(t *testing.T) {
	const page = "<!DOCTYPE html><script>alert(1)</script>"
	for given, want := range map[string][]string{"": nil, "Content-Type: a/b\r\n": {"a/b"}} {
		upstream := converse(t, func(_ int64, _ *http.Request, to net.Conn) bool {
			return say(to, fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", given, len(page), page))
		})
		r := start(t, upstream.url, payments)
		for _, a := range []answer{r.pay("k"), r.pay("k"), r.do("POST", "/free", "x"), r.do("GET", "/free", "")} {
			expect.Equal(t, a.asked, a.said(), "200 "+page)
			expect.Equal(t, a.asked+": Content-Type", a.header["Content-Type"], want, cmpopts.EquateEmpty())
		}
	}
}
