//go:build check

package cli

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// stalls are servers that answer, and never come to an end: what they say at first, and then again
// and again.
var stalls = map[string][2]string{
	"nothing":             {},
	"another protocol":    {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "x"},
	"early hints":         {"", "HTTP/1.1 103 Early Hints\r\nX-A: a\r\n\r\n"},
	"a header":            {"HTTP/1.1 200 OK\r\nX-A: ", "a"},
	"a body":              {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{", " "},
	"a body of a problem": {"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: 99999\r\n\r\n{", " "},
}

// stalling starts such a server. asked has an item for each request that came.
func stalling(t *testing.T, says [2]string) (address string, asked <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen", err)
	requests, over := make(chan struct{}, 1000), make(chan struct{})
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				requests <- struct{}{}
				for _, err := io.WriteString(conn, says[0]); err == nil; _, err = io.WriteString(conn, says[1]) {
					select {
					case <-over:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		close(over)
		conns.Wait()
	})
	return listener.Addr().String(), requests
}

// askers are commands that ask a server.
func askers(address string) map[string][]string {
	server := []string{"--server", "http://" + address}
	command := []string{"--", "true"}
	return map[string][]string{
		"incr":        append([]string{"incr", "orders"}, server...),
		"once":        slices.Concat([]string{"once", "nightly"}, server, command),
		"lock run":    slices.Concat([]string{"lock", "run", "deploy"}, server, command),
		"worker run":  slices.Concat([]string{"worker", "run", "orders"}, server, command),
		"healthcheck": {"healthcheck", "--listen", address},
		"doctor":      append([]string{"doctor"}, server...),
	}
}

func TestCommandsEndWhateverAServerAnswers(t *testing.T) {
	t.Parallel()
	for name := range askers("") {
		began := map[string]*running{} // all at once, since each waits for some seconds
		for what, says := range stalls {
			address, _ := stalling(t, says)
			began[what] = start(t, askers(address)[name]...)
		}
		for what, ran := range began {
			if code := ran.code(); code != failed && code != tryLater {
				t.Errorf("exit code of %s, answered %s: got %d, want %d or %d; it wrote: %s", name, what, code, failed, tryLater, ran.stderr)
			}
		}
	}
}

// A signal ends a command at once, however long it would wait. The time of a request can be over
// before that on a busy machine, and then it is tried again.
func TestSignalsEndCommandsThatWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	for name := range askers("") {
		for number, what := range map[syscall.Signal]string{syscall.SIGTERM: "early hints", syscall.SIGINT: "a body"} {
			address, asked := stalling(t, stalls[what])
			args := askers(address)[name]
			if strings.HasSuffix(name, " run") || name == "once" {
				args = slices.Insert(slices.Clone(args), 2, "--wait", "1h")
			}
			expect.Eventually(t, name+" ends at a signal, answered "+what, func() bool {
				ran := start(t, args...)
				<-asked
				expect.NoError(t, "send the signal", ran.cmd.Process.Signal(number))
				code := ran.code()
				return (code == failed || code == tryLater) && !strings.Contains(ran.stderr.String(), "deadline exceeded")
			})
		}
	}
}
