//go:build check

package client_test

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// keptCalls is how many calls are made over one connection.
const keptCalls = 200

// wires counts the connections of a server, and closes them when /incr/close is called.
type wires struct {
	next http.Handler

	mu    sync.Mutex
	open  map[string]net.Conn // by the client's address
	count int
}

func (w *wires) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/incr/close" {
		w.mu.Lock()
		for address, conn := range w.open {
			if address != r.RemoteAddr {
				conn.Close()
			}
		}
		w.mu.Unlock()
	}
	w.next.ServeHTTP(answer, r)
}

func (w *wires) changed(conn net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch state {
	case http.StateNew:
		w.count++
		w.open[conn.RemoteAddr().String()] = conn
	case http.StateClosed, http.StateHijacked:
		delete(w.open, conn.RemoteAddr().String())
	}
}

// accepted returns how many connections came since it was last called.
func (w *wires) accepted() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, w.count = w.count, 0
	return n
}

// serveWires serves a service by TLS or without. It returns its URL, and the variables by which
// programs trust it.
func serveWires(t *testing.T, start func(*httptest.Server)) (w *wires, url string, trust []string) {
	t.Helper()
	w = &wires{next: embedded(t).proxy, open: map[string]net.Conn{}}
	web := httptest.NewUnstartedServer(w)
	web.Config.ConnState = w.changed
	start(web)
	t.Cleanup(web.Close)
	own := web.Certificate()
	if own == nil {
		return w, web.URL, nil
	}
	file := filepath.Join(t.TempDir(), "certificate.pem")
	must(t, "writing the certificate", os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Raw}), 0o600))
	return w, web.URL, []string{"SSL_CERT_FILE=" + file, "NODE_EXTRA_CA_CERTS=" + file, "CURL_CA_BUNDLE=" + file}
}

// A client keeps its connection, by TLS too, and sees that the service has closed it: no call is
// lost. With -v the test prints what a call takes, beside curl, which keeps its connection as well.
func TestPythonAndNodeClientsKeepTheirConnection(t *testing.T) {
	for protocol, start := range map[string]func(*httptest.Server){"http": (*httptest.Server).Start, "https": (*httptest.Server).StartTLS} {
		t.Run(protocol, func(t *testing.T) {
			w, url, trust := serveWires(t, start)
			n := strconv.Itoa(keptCalls)
			for name, command := range map[string][]string{
				"Python": {"PYTHONPATH=" + pythonPackage, languages[0].program, "testdata/kept.py", url, n},
				"Node":   {languages[1].program, "testdata/kept.mjs", url, n},
			} {
				took := ran(t, ".", "env", append(trust, command...)...)
				// its own, that of the client that has it closed, and its next
				expect.Equal(t, "connections of "+name, w.accepted(), 3)
				t.Logf("%s: %s ms a call", name, strings.TrimSpace(took))
			}
			urls := strings.Fields(strings.Repeat("-o /dev/null "+url+"/incr/orders ", 1+keptCalls))
			curl := append(append(trust, "curl", "-sf", "-X", "POST", "-w", "%{time_total}\n"), urls...)
			times := strings.Fields(ran(t, ".", "env", curl...))
			expect.Equal(t, "connections of curl", w.accepted(), 1)
			sum := 0.0
			for _, took := range times[1:] {
				seconds, err := strconv.ParseFloat(took, 64)
				must(t, "reading what curl prints", err)
				sum += seconds
			}
			t.Logf("curl: %.3f ms a call", sum*1000/keptCalls)
		})
	}
}
