package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// blackHole is a proxy that can be made to swallow everything, on connections that are there and on new ones.
type blackHole struct{ *toxiproxy.Proxy }

func startBlackHole(t *testing.T, target string) blackHole {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", target)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return blackHole{proxy}
}

func (b blackHole) swallow(t *testing.T) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := b.Toxics.AddToxicJson(strings.NewReader(`{"type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`)); err != nil {
			t.Fatal(err)
		}
	}
}

// Each row is a way of losing what grants the lease. The command that ran under it, and what it has started, deaf to SIGTERM, must be gone before its
// window ends by the server's clock.
func TestCommandNeverOutlivesItsWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		begin func(t *testing.T) (flags []string, fault func())
	}{
		{"service killed", func(t *testing.T) ([]string, func()) {
			p := serve(t)
			return []string{"--server", p.banner.URL}, p.kill
		}},
		{"service stopped", func(t *testing.T) ([]string, func()) {
			p := serve(t)
			return []string{"--server", p.banner.URL}, func() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
		}},
		{"service in a black hole", func(t *testing.T) ([]string, func()) {
			p := serve(t)
			hole := startBlackHole(t, strings.TrimPrefix(p.banner.URL, "http://"))
			return []string{"--server", "http://" + hole.Listen}, func() { hole.swallow(t) }
		}},
		{"service's redis stopped", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			p := serve(t, "--redis", redis.URL(), "--new-pools", "trust")
			return []string{"--server", p.banner.URL}, redis.Pause
		}},
		{"redis killed", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			return []string{"--redis", redis.URL(), "--new-pools", "trust"}, redis.Kill
		}},
		{"redis stopped", func(t *testing.T) ([]string, func()) {
			redis := redistest.Start(t)
			return []string{"--redis", redis.URL(), "--new-pools", "trust"}, redis.Pause
		}},
		{"redis in a black hole", func(t *testing.T) ([]string, func()) {
			hole := startBlackHole(t, redistest.Start(t).Addr())
			return []string{"--redis", "redis://" + hole.Listen, "--new-pools", "trust"}, func() { hole.swallow(t) }
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			flags, fault := row.begin(t)
			r := workerRunBeating(t, append(flags, "--ttl", "2s"), "deaf", "fork")
			r.renewed()
			fault()
			if code := r.code(); code != tryLater || !strings.Contains(r.stderr.String(), "was lost") || !strings.Contains(r.stderr.String(), "start the command again") {
				t.Errorf("%d %s", code, r.stderr)
			}
			r.inTime(r.path + ".forked")
		})
	}
}

// Each row is something that befalls the processes which watch over the command.
func TestCommandNeverOutlivesThoseWhoWatchIt(t *testing.T) {
	signal := func(pid int, s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Error(err)
		}
	}
	for _, row := range []struct {
		name  string
		fault func(r *running, p *process)
		code  int // of worker run; -1 = it is killed
		says  string
	}{
		{"worker run killed", func(r *running, p *process) { signal(r.cmd.Process.Pid, syscall.SIGKILL) }, -1, ""},
		{"worker run stopped past the window", func(r *running, p *process) {
			signal(r.cmd.Process.Pid, syscall.SIGSTOP)
			r.inTime(r.path + ".forked") // while it is still stopped
			signal(r.cmd.Process.Pid, syscall.SIGCONT)
		}, tryLater, "was lost"},
		{"guard killed", func(r *running, p *process) { signal(r.guard(), syscall.SIGKILL) }, failed, "guards it"},
		{"guard stopped, then the service lost", func(r *running, p *process) {
			signal(r.guard(), syscall.SIGSTOP)
			signal(p.cmd.Process.Pid, syscall.SIGSTOP)
		}, tryLater, "was lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := serve(t)
			r := workerRunBeating(t, []string{"--server", p.banner.URL, "--ttl", "2s"}, "deaf", "fork")
			r.renewed()
			row.fault(r, p)
			if code := r.code(); code != row.code || !strings.Contains(r.stderr.String(), row.says) {
				t.Errorf("%d %s", code, r.stderr)
			}
			r.inTime(r.path + ".forked")
		})
	}
}
