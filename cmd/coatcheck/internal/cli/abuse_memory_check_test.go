//go:build check && linux

package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// The bounds of a pod of the chart: what the process is told, and where it is killed.
var chartSettings = []string{"GOGC=100", "GOMEMLIMIT=200MiB", "COATCHECK_MAX_CONNECTIONS=500"}

const podMemory = 256 // MiB

// target is the program as it is deployed, without the race detector, which takes memory of its
// own.
type target struct {
	t      *testing.T
	pid    int
	addr   string
	secure *tls.Config // how it is spoken to; nil = without TLS

	dialled atomic.Int64 // connections that were made or refused
}

func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "coatcheck")
	if out, err := exec.Command("go", "build", "-o", program, "../../../../cmd/coatcheck").CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	return program
}

func startTarget(t *testing.T, program string, args ...string) *target {
	t.Helper()
	command := exec.Command(program, append(args, "--json", "--listen", "127.0.0.1:0", "--log-level", "error")...)
	command.Env = append(os.Environ(), chartSettings...)
	out, err := command.StdoutPipe()
	expect.NoError(t, "open a pipe from the program", err)
	p, err := proctest.Start(command, syscall.SIGKILL)
	expect.NoError(t, "start the program", err)
	t.Cleanup(p.Kill)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("waiting for the banner of %v: %v", args, err)
	}
	var banner started
	if err := json.Unmarshal(line, &banner); err != nil {
		t.Fatalf("the banner %q: %v", line, err)
	}
	_, addr, _ := strings.Cut(banner.URL, "://")
	return &target{t: t, pid: p.Pid(), addr: addr}
}

// memory is how much of the machine's memory the process has, in MiB.
func (a *target) memory() int { return a.figure("VmRSS:") }

// peak is the most that it has had since forgetPeak, as the system has counted: on a busy machine
// the test itself would look too seldom.
func (a *target) peak() int { return a.figure("VmHWM:") }

func (a *target) forgetPeak() {
	a.t.Helper()
	const peak = "5" // proc_pid_clear_refs(5)
	expect.NoError(a.t, "forget the peak", os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.pid), []byte(peak), 0o200))
}

func (a *target) figure(name string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	if err != nil {
		a.t.Errorf("the process is gone: %v", err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), name)
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kib >> 10
}

// dial makes a connection as an attacker does.
func (a *target) dial() (net.Conn, error) {
	defer a.dialled.Add(1)
	if a.secure != nil {
		return tls.Dial("tcp", a.addr, a.secure)
	}
	return net.Dial("tcp", a.addr)
}

// attack has many connections say the same, and keeps them for a while.
type attack struct {
	name        string
	connections int
	head        string // of the request
	body        int    // bytes that follow it
	unread      bool   // the answer is not read
	// of each connection, by HTTP/2: requests whose bodies have so many bytes and no end; 0 =
	// HTTP/1.1
	streams int
	raw     bool // head is what is said by HTTP/2 after the preface, frame by frame
}

// suffer reports what the process had before an attack, at its peak and when all have left.
func (a *target) suffer(one attack) {
	a.t.Helper()
	a.forgetPeak()
	before := a.memory()
	text := one.head + strings.Repeat("a", one.body)
	connections := one.connections
	if testing.Short() {
		connections /= 2 // still more than are let in
	}
	name := fmt.Sprintf("%d times %s", connections, one.name)
	var attackers sync.WaitGroup
	over := make(chan struct{})
	for range connections {
		attackers.Go(func() {
			if one.raw {
				a.sayFrames(text, over)
				return
			}
			if one.streams > 0 {
				a.askAtOnce(one.streams, one.body, over)
				return
			}
			a.say(text, one.unread, over)
		})
	}
	a.waitForPeak()
	close(over)
	attackers.Wait()
	peak := a.peak()
	expect.Eventually(a.t, name+": others are answered", a.answers)
	a.t.Logf("%-75s before %3d MiB, peak %3d MiB, after %3d MiB", name, before, peak, a.memory())
	if peak > podMemory {
		a.t.Errorf("%s: at its peak the process has %d MiB, want %d at most", name, peak, podMemory)
	}
}

// An attack takes longest at most. With -short it ends when for so long as quiet no attacker has
// come and the peak has not risen.
const (
	longest = 12 * time.Second
	quiet   = 2 * time.Second
)

func (a *target) waitForPeak() {
	begun := time.Now()
	moved, peak, dialled := begun, 0, int64(0)
	for now := begun; now.Sub(begun) < longest && (!testing.Short() || now.Sub(moved) < quiet); now = time.Now() {
		time.Sleep(20 * time.Millisecond)
		if high, came := a.peak(), a.dialled.Load(); high > peak || came > dialled {
			moved, peak, dialled = time.Now(), high, came
		}
	}
}

// say sends a text on a connection of its own, which it keeps, and reads what is answered unless
// that is to be left.
func (a *target) say(text string, unread bool, over <-chan struct{}) {
	conn, err := a.dial()
	if err != nil {
		return // it may be sent away
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, text); err == nil && !unread {
		_, _ = io.Copy(io.Discard, conn)
	}
	<-over
}

// sayFrames sends frames on a connection of HTTP/2 of its own, which it keeps, and takes no answer.
func (a *target) sayFrames(frames string, over <-chan struct{}) {
	secure := a.secure.Clone()
	secure.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", a.addr, secure)
	a.dialled.Add(1)
	if err != nil {
		return // it may be sent away
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	noWindow := frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00")
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+noWindow+frames)
	<-over
}

// frame is one of HTTP/2 (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(head, flags), stream)) + payload
}

// manyFrames are requests of one connection, on streams of their own.
func manyFrames(n int, flags byte, payload string) string {
	var frames strings.Builder
	for i := range n {
		frames.WriteString(frame(1, flags, uint32(2*i+1), payload))
	}
	return frames.String()
}

// askAtOnce sends requests whose bodies do not end on one connection, by HTTP/2.
func (a *target) askAtOnce(streams, body int, over <-chan struct{}) {
	transport := &http.Transport{TLSClientConfig: a.secure.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var requests sync.WaitGroup
	for range streams {
		requests.Go(func() {
			endless := io.MultiReader(strings.NewReader(strings.Repeat("a", body)), endsWith{ctx})
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.addr+"/token", endless)
			if err != nil {
				return
			}
			if answer, err := transport.RoundTrip(request); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	requests.Wait()
	<-over
}

// endsWith has nothing to read until the context ends.
type endsWith struct{ ctx context.Context }

func (e endsWith) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, io.ErrUnexpectedEOF
}

// answers reports whether another client gets an answer.
func (a *target) answers() bool {
	conn, err := a.dial()
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
	status, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.Contains(status, " 200 ")
}

func unfinished(path, more string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n", path, more, length)
}

var largeHeader = "X-Large: " + strings.Repeat("a", 60_000) + "\r\n"

func TestMemoryUnderAttackStaysWithinThePod(t *testing.T) {
	t.Parallel()
	program := buildProgram(t)
	service := startTarget(t, program, "serve", "--redis", "embedded:")
	const form = "Content-Type: application/x-www-form-urlencoded\r\n"
	for _, one := range []attack{
		{"forms of the tinyid door, unfinished", 2000, unfinished("/tinyid/id/nextId", form, 1<<20), 1<<20 - 1, false, 0, false},
		{"forms of 8 KiB, unfinished", 2000, unfinished("/tinyid/id/nextId", form, 8<<10), 8<<10 - 1, false, 0, false},
		{"large headers with unfinished bodies", 2000, unfinished("/token", largeHeader, 1<<20), 1000, false, 0, false},
		{"large headers that do not end", 2000, "GET / HTTP/1.1\r\n" + largeHeader, 0, false, 0, false},
		{"large bodies, unfinished", 2000, unfinished("/token", "", 1<<20), 1<<20 - 1, false, 0, false},
		{"that take nothing of 10,000 ids", 2000, strings.Repeat("GET /id/uuid?n=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n", 20), 0, true, 0, false},
		{"that take nothing of the interface", 2000, strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n", 20), 0, true, 0, false},
	} {
		service.suffer(one)
	}
}

func TestMemoryUnderAttackByTLSStaysWithinThePod(t *testing.T) {
	t.Parallel()
	own := certify(t, "localhost")
	service := startTarget(t, buildProgram(t), "serve", "--redis", "embedded:", "--tls-cert", own.cert, "--tls-key", own.key)
	service.secure = &tls.Config{RootCAs: own.pool(t), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	for _, one := range []attack{
		{"large bodies, unfinished, by TLS", 2000, unfinished("/token", "", 1<<20), 1<<20 - 1, false, 0, false},
		{"large headers with unfinished bodies, by TLS", 2000, unfinished("/token", largeHeader, 1<<20), 1000, false, 0, false},
		{"100 bodies each of 64 KiB without an end, by HTTP/2", 100, "", 64 << 10, false, 100, false},
		{"headers of 1,500 fields in 1.5 KiB that do not end, by HTTP/2", 2000, frame(1, 0, 1, strings.Repeat("\x90", 1500)), 0, false, 0, true},
		{"headers of 4,000 fields in 4 KiB that do not end, by HTTP/2", 2000, frame(1, 0, 1, strings.Repeat("\x90", 4000)), 0, false, 0, true},
		{"100 answers each that are not taken, by HTTP/2", 2000, manyFrames(100, 5, "\x82\x87\x04\x0d/openapi.yaml\x01\x09localhost"), 0, false, 0, true},
		{"100 requests each of which no body comes, by HTTP/2", 2000, manyFrames(100, 4, "\x83\x87\x04\x06/token\x01\x09localhost"), 0, false, 0, true},
	} {
		service.suffer(one)
	}
}

func TestMemoryOfTheGatewayUnderAttackStaysWithinThePod(t *testing.T) {
	t.Parallel()
	program := buildProgram(t)
	page := strings.Repeat("a", 1<<20)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, page)
	}))
	defer upstream.Close()
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	expect.NoError(t, "write the file", os.WriteFile(routes, []byte("routes: [{match: POST /payments}]"), 0o600))
	g := startTarget(t, program, "gateway", "--redis", "embedded:", "--upstream", upstream.URL, "--routes", routes, "--admin-listen", "127.0.0.1:0")
	const key = "Idempotency-Key: a\r\n"
	for _, one := range []attack{
		{"guarded bodies, unfinished", 1500, unfinished("/payments", key, 1<<20), 1<<20 - 1, false, 0, false},
		{"open bodies, unfinished", 1500, unfinished("/open", "", 1<<20), 1<<20 - 1, false, 0, false},
		{"large headers with unfinished bodies", 1500, unfinished("/payments", key+largeHeader, 1<<20), 1000, false, 0, false},
		{"that take nothing of large answers", 1500, strings.Repeat("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n", 20), 0, true, 0, false},
	} {
		g.suffer(one)
	}
}
