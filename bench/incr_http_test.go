package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Each service answers every request with a number, and Redis has counted each once, or the command
// fails.
func TestIncrComparesEveryService(t *testing.T) {
	result := command(t, "incr", "-rounds", "1", "-seconds", "0.3", "-conns", "1,3")
	sides := []string{echoConstant, echoCounters, echoMiddleware, coatcheck}
	if _, err := exec.LookPath("webdis"); err == nil {
		sides = append(sides, webdisService)
	} else if !strings.Contains(strings.Join(result.Notes, "\n"), "webdis is not installed") {
		t.Errorf("it is not told that webdis was left out: %q", result.Notes)
	}
	rates := result.cells(t, "requests/s", 0, 1, 2)
	for _, side := range sides {
		for _, load := range []string{"1.00 1.00 ", "1.00 3.00 ", "1000 1.00 ", "1000 3.00 "} {
			if rate, _ := rates[load+side].(float64); rate <= 0 {
				t.Errorf("%s%s: %v requests/s", load, side, rates[load+side])
			}
		}
	}
}

// The middleware beside coatcheck's does what coatcheck's does, or the comparison is not one.
func TestHandlerWithMiddlewareAnswersAsAServiceDoes(t *testing.T) {
	e := bareIncr(func(_ context.Context, name string) (int64, error) {
		if name == "bad" {
			panic(name)
		}
		return 7, nil
	})
	useMiddleware(e)
	ask := func(path string) *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		e.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return response
	}
	e.Logger.SetOutput(io.Discard)
	response := ask("/incr/k")
	expect.Equal(t, "the status", response.Code, http.StatusOK)
	for _, name := range []string{"X-Request-Id", "X-Content-Type-Options", "Content-Security-Policy"} {
		if response.Header().Get(name) == "" {
			t.Errorf("the response has no %s: %v", name, response.Header())
		}
	}
	expect.Equal(t, "the status of a panic", ask("/incr/bad").Code, http.StatusInternalServerError)
	expect.Contains(t, "the metrics", ask("/metrics").Body.String(), `requests_total{method="GET",route="/incr/:key",status="200"} 1`,
		`requests_total{method="GET",route="/incr/:key",status="500"} 1`, `request_seconds_count{route="/incr/:key"} 2`, "requests_under_way 1")
}

// A generator that is content with anything measures nothing.
func TestGetRefusesAWrongAnswer(t *testing.T) {
	var n atomic.Int64
	text := func(status int, format string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			if strings.Contains(format, "%") {
				fmt.Fprintf(w, format, n.Add(1))
				return
			}
			_, _ = io.WriteString(w, format)
		}
	}
	for _, row := range []struct {
		name    string
		handler http.HandlerFunc
		fault   string // "" = none
	}{
		{"right", text(200, `{"key":"k7","value":%d}`), ""},
		{"another status", text(500, `{"value":%d}`), "answered"},
		{"the same value twice", text(200, `{"value":7}`), "7 behind 7"},
		{"no value", text(200, `{}`), "no number"},
		{"cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := httptest.NewServer(row.handler)
			defer server.Close()
			g := getting{generator: generator{addr: server.Listener.Addr().String(), conns: 1, warm: time.Millisecond, span: 200 * time.Millisecond}, path: "/", keys: 1}
			result, err := g.run(t.Context())
			switch {
			case row.fault == "" && (err != nil || result.Sent == 0):
				t.Errorf("got %+v and error %v, want requests that were answered", result, err)
			case row.fault != "" && (err == nil || !containsAny(err.Error(), row.fault)):
				t.Errorf("got %v, want %s", err, row.fault)
			}
		})
	}
}
