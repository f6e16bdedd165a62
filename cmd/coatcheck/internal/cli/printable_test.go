package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What another server answers is printed without the characters that move a terminal.
func TestTextsOfAServerMoveNoTerminal(t *testing.T) {
	t.Parallel()
	const erase = "\x1b[2J\u009b31m\r"
	for status, body := range map[int]string{200: `{"status":"ready` + erase + `"}`, 503: `{"status":"not ready","reason":"\u001b[2J\u009b31m` + `"}` + erase} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Coatcheck-Version", "9")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		for _, args := range [][]string{{"healthcheck", "--listen", strings.TrimPrefix(server.URL, "http://")}, {"doctor", "--server", server.URL}} {
			got := execute(t, nil, args...)
			lacks(t, "output of "+strings.Join(args, " "), got.stdout+got.stderr, "\x1b", "\u009b", "\r")
		}
	}
}
