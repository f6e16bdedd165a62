//go:build nightly && linux

package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// As many connections at once, each with a request under way, are all answered right: each with a
// value of its own, and with none left out. The service runs some of them at a time and refuses
// others, which ask again.
func TestTenThousandConnectionsThatWork(t *testing.T) {
	const rounds, workers = 2, 100
	r := newRig(t, "--max-connections", "12000")
	before := r.look(r.service)
	all := crowd(t, r.service, connections(t))
	begun := make(chan struct{})
	values := make([][]int64, workers)
	var working sync.WaitGroup
	var refused atomic.Int64
	for i := range workers {
		working.Go(func() {
			own := all[i*len(all)/workers : (i+1)*len(all)/workers]
			<-begun
			for range rounds {
				got, n, err := r.countAll(own)
				if err != nil {
					t.Errorf("requests on %d connections: got error %v, want values", len(own), err)
					return
				}
				values[i] = append(values[i], got...)
				refused.Add(int64(n))
			}
		})
	}
	during := r.look(r.service)
	start := time.Now()
	close(begun)
	working.Wait()
	counted := slices.Concat(values...)
	t.Logf("%d connections, %d requests in %v, and %d that were refused; %d KiB of memory before, %d with all connected, %d after the requests", len(all), len(counted), time.Since(start).Round(time.Millisecond), refused.Load(), before.memory, during.memory, r.look(r.service).memory)
	slices.Sort(counted)
	for i, value := range counted {
		if value != int64(i+1) {
			t.Fatalf("value %d in place %d: one was told twice, or left out", value, i+1)
		}
	}
	expect.Equal(t, "values that were counted", len(counted), rounds*len(all))
	for _, conn := range all {
		_ = conn.Close()
	}
	chaostest.Await(t, time.Minute, func() string { return compare("serve", before, r.look(r.service)) })
}

// countAll sends a request on each connection, and then reads the answers. One that was refused,
// since too many are under way, is sent again.
func (r *rig) countAll(conns []net.Conn) (values []int64, refused int, err error) {
	request := "POST /incr/crowd HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + r.key + "\r\nContent-Length: 0\r\n\r\n"
	for len(conns) > 0 {
		for _, conn := range conns {
			if _, err := io.WriteString(conn, request); err != nil {
				return nil, 0, err
			}
		}
		var again []net.Conn
		for _, conn := range conns {
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return nil, 0, err
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			var got struct {
				Value int64 `json:"value"`
			}
			switch {
			case err == nil && response.StatusCode == http.StatusTooManyRequests:
				again = append(again, conn)
			case err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(text, &got) != nil:
				return nil, 0, fmt.Errorf("answer %d, %s, %w", response.StatusCode, text, err)
			default:
				values = append(values, got.Value)
			}
		}
		refused += len(again)
		conns = again
	}
	return values, refused, nil
}

// As many connections as are let in, all of them unused: others are answered, what each takes is
// little, and when they end it is given back.
func TestTenThousandUnusedConnections(t *testing.T) {
	r := newRig(t)
	n := connections(t)
	for _, p := range []*process{r.service, r.gateway} {
		before := r.look(p)
		all := crowd(t, p, n)
		during := r.look(p)
		each := (during.memory - before.memory) << 10 / n
		t.Logf("%s, %d unused connections: %d KiB of memory more, %d bytes each; %d descriptors, %d goroutines", p.name, n, during.memory-before.memory, each, during.descriptors, during.goroutines)
		if during.descriptors < n*9/10 {
			t.Errorf("%s has %d descriptors: where are the connections?", p.name, during.descriptors)
		}
		if each > 64<<10 {
			t.Errorf("%s: %d bytes for each connection", p.name, each)
		}
		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for range 100 {
			if status, text, err := r.do(client, p, "POST", "/incr/others", ""); err != nil || status != http.StatusOK {
				t.Fatalf("%s: others are answered %d %s %v", p.name, status, text, err)
			}
		}
		for _, conn := range all {
			_ = conn.Close()
		}
		chaostest.Await(t, time.Minute, func() string { return compare(p.name, before, r.look(p)) })
	}
}

// connections are 10,000, or as many as this process may have.
func connections(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	expect.NoError(t, "syscall.Getrlimit", syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return min(10_000, int(limit.Cur)-1000)
}

// crowd connects as many times, each with one request that is answered.
func crowd(t *testing.T, p *process, n int) (all []net.Conn) {
	t.Helper()
	answer := make([]byte, 4096)
	for i := range n {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if got, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:got]), "HTTP/1.1 200 ") {
			t.Fatalf("connection %d: %v %.80s", i, err, answer[:got])
		}
		all = append(all, conn)
	}
	return all
}
