package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
)

// The trailers of a request are there only when its body has come.
func TestTrailersOfARequestArePassedOn(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v", r.Trailer)
	})
	r := start(t, upstream.URL, payments)
	conn := r.dial()
	say(conn, "POST /other HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n")
	expect.Contains(t, "the trailers that the upstream saw", untilEnd(t, "POST /other", conn), "map[X-Sum:[42]]")
}
