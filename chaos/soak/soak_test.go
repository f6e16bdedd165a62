//go:build check && linux

package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Whatever strangers do, what a service and a gateway take stays bounded, those that work are
// answered right, and when all have left it is as it was.
func TestMixedLoadTakesNoMoreAndMore(t *testing.T) {
	span, every := 10*time.Second, 100*time.Millisecond
	if *minutes > 0 {
		span, every = time.Duration(*minutes*float64(time.Minute)), time.Second
	}
	long := span >= time.Minute
	t.Setenv("GOMEMLIMIT", "200MiB") // as in a pod of the chart, of 256 MiB
	r := newRig(t)
	seen := r.watched()
	ctx, stop := context.WithTimeout(t.Context(), span)
	defer stop()
	l := begin(ctx, r)
	for tick := time.NewTicker(every); ctx.Err() == nil; {
		for _, one := range seen {
			one.seen = append(one.seen, r.look(one.process))
		}
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
		}
	}
	l.end()
	var rows []row
	for _, one := range seen {
		rows = append(rows, one.left(t, r, long)...)
		name, peak := one.process.name, slices.MaxFunc(one.seen, func(a, b figures) int { return a.memory - b.memory }).memory
		t.Logf("%s under GOMEMLIMIT=200MiB: before %d MiB, peak %d MiB, after %d MiB", name, one.before.memory>>10, peak>>10, r.look(one.process).memory>>10)
		if peak > 256<<10 {
			t.Errorf("%s has %d MiB at its peak, want 256 at most", name, peak>>10)
		}
	}
	t.Logf("%v of mixed load\n\n%s\n%s", span, table(rows), l.table())
	for _, row := range rows {
		row.check(t, true)
	}
	close(l.wrong)
	for err := range l.wrong {
		t.Errorf("a client that works: %v", err)
	}
	for name, done := range l.counts {
		if done.Load() == 0 {
			t.Errorf("this never happened: %s", name)
		}
	}
	for _, one := range seen {
		checkLog(t, one.process, r.key)
	}
}

func (r *rig) look(p *process) figures {
	r.t.Helper()
	f, err := p.look()
	if err != nil {
		r.t.Fatalf("%s is gone: %v\n%s", p.name, err, p.process().Log)
	}
	return f
}

// pools is how many the service holds an id of at most, with two goroutines each: of any pool that
// clients have named.
const pools = 64

// compare tells what is left behind by those who have left. Connections to Redis and from the
// gateway stay, up to their bound, and what serves them.
func compare(name string, before, after figures) string {
	if after.descriptors > before.descriptors+100 || after.goroutines > before.goroutines+2*pools+100 {
		return fmt.Sprintf("%s has %d descriptors and %d goroutines, and had %d and %d", name, after.descriptors, after.goroutines, before.descriptors, before.goroutines)
	}
	return ""
}

// checkLog looks that nothing strange was said, and no secret.
func checkLog(t *testing.T, p *process, key string) {
	t.Helper()
	for _, log := range p.said {
		said := log.String()
		if strings.Contains(said, key) || strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") {
			t.Errorf("%s said:\n%s", p.name, said)
		}
	}
}

// table lists how often each kind of client had its turn.
func (l *load) table() string {
	var b strings.Builder
	b.WriteString("| client | turns |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, l.counts[name].Load())
	}
	return b.String()
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
