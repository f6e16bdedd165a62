package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestStopWaitsForTheLongestRequestOfTheRoutes(t *testing.T) {
	r := start(t, "http://127.0.0.1:1", `routes: [{match: /a, upstream_timeout_ms: 40000}, {match: /b, upstream_timeout_ms: 90000}, {match: /c}]`)
	expect.Equal(t, "how long a stop waits", r.g.stopTimeout(), 95*time.Second)
	r.write(`routes: [{match: /a}]`)
	expect.Error(t, "Reload", r.g.Reload(), nil)
	expect.Equal(t, "how long a stop waits for requests of routes that are gone", r.g.stopTimeout(), 95*time.Second)
	expect.Equal(t, "the log warns", logged(r, "--stop-timeout"), false)
}

func TestStopThatDoesNotWaitForARouteIsWarnedOf(t *testing.T) {
	for limit, warned := range map[time.Duration]bool{29 * time.Second: true, 30 * time.Second: false} {
		r := start(t, "http://127.0.0.1:1", `routes: [{match: POST /payments}]`, func(c *Config) { c.StopTimeout = limit })
		expect.Equal(t, "how long a stop waits", r.g.stopTimeout(), limit)
		expect.Equal(t, "the log warns of a stop of "+limit.String(), logged(r, "--stop-timeout"), warned)
	}
}

func logged(r *rig, text string) bool { return strings.Contains(r.log.String(), text) }

func TestGuardedRequestAtAStopIsRefusedAndClaimsNothing(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments)
	r.g.draining.Closing.Store(true)
	refused := r.do("POST", "/payments", "x", "Idempotency-Key: a")
	r.wantCode(refused, api.UpstreamUnavailable)
	r.wantHeader(refused, "Retry-After", "1")
	r.g.draining.Closing.Store(false)
	// another payload: nothing was claimed
	r.wantPaid(r.do("POST", "/payments", "y", "Idempotency-Key: a"), "paid 1", false)
}

// A body can take long to come. What it belongs to would be cut short by the end of the stop.
func TestGuardedRequestWhoseBodyComesAtAStopClaimsNothing(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments)
	stops := readFunc(func([]byte) (int, error) {
		r.g.draining.Closing.Store(true)
		return 0, io.EOF
	})
	request := httptest.NewRequest(http.MethodPost, "/payments", io.MultiReader(strings.NewReader("x"), stops))
	request.Header.Set("Idempotency-Key", "a")
	refused := httptest.NewRecorder()
	r.g.ServeHTTP(refused, request)
	expect.Equal(t, "status of a request whose body came during the stop", refused.Code, 503)
	expect.Contains(t, "its problem", refused.Body.String(), string(api.UpstreamUnavailable), "The gateway is stopping")
	upstream.wantPaid(t, 0)
	r.g.draining.Closing.Store(false)
	// another payload: nothing was claimed
	r.wantPaid(r.do("POST", "/payments", "y", "Idempotency-Key: a"), "paid 1", false)
}

// readFunc is a reader that is one function.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(into []byte) (int, error) { return f(into) }
