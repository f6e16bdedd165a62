package gateway

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestKeysThatNothingGuardsAreCountedAndTold(t *testing.T) {
	for _, row := range []struct {
		method, header string
		counts         bool
	}{
		{"POST", "Idempotency-Key: a", true},
		{"POST", "X-Idempotency-Key: a", true},
		{"DELETE", "Idempotency-Token: a", true},
		{"POST", "Other: a", false},
		{"GET", "Idempotency-Key: a", false},
	} {
		t.Run(row.method+" "+row.header, func(t *testing.T) {
			s := serve(t, newShop(t, nil).URL, payments)
			for range 3 {
				s.do(row.method, "/v1/customers/c0ffee42/refund", "x", row.header)
			}
			outcome, lines := "unguarded", 0
			if row.counts {
				outcome, lines = "unguarded_key", 1
			}
			s.wantMetrics(`coatcheck_gateway_requests_total{outcome="` + outcome + `",route="-"} 3`)
			expect.Equal(t, "lines that say what to add", strings.Count(s.log.String(), "with {name} for each {…}"), lines)
			expect.Equal(t, "warnings in the log", strings.Count(s.log.String(), "shape=/v1/customers/{…}/refund"), lines)
		})
	}
}

func TestUnguardedKeyIsToldOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	var warning unguardedWarning
	began := time.Now()
	for _, at := range []time.Duration{0, 30 * time.Second, 59 * time.Second, time.Minute, 90 * time.Second} {
		warning.write(slog.New(slog.NewTextHandler(&log, nil)), httptest.NewRequest(http.MethodPost, "/x", nil), began.Add(at))
	}
	expect.Equal(t, "lines in a minute and a half", strings.Count(log.String(), "level=WARN"), 2)
}

func TestShapeShowsNothingThatMayBeSecret(t *testing.T) {
	for path, want := range map[string]string{
		"/":                           "/",
		"/orders/":                    "/orders/",
		"/v1/orders/42/items":         "/v1/orders/{…}/items",
		"/reset/S3cr3t":               "/reset/{…}",
		"/users/ann@example.com":      "/users/{…}",
		"/" + strings.Repeat("a", 40): "/{…}",
		"/a/b/c/d/e/f/g/h/i/j/k":      "/a/b/c/d/e/f/g/h/{…}",
	} {
		expect.Equal(t, "the shape of "+path, shapeOf(path), want)
	}
}
