//go:build compose

package containers_test

import (
	"context"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// One engine for all: they are the steps of one story, in order.
func TestComposeFileServes(t *testing.T) {
	e := startEngine(t)
	e.redisImage(t, redisImage, "redis")
	e.serviceImage(t, serviceImage)
	released := e.releasedImage(t)
	p, upgraded := newProject(t, e, serviceImage), newProject(t, e, released)
	t.Run("one Redis", func(t *testing.T) { oneRedis(t, p, upgraded, released) })
	t.Run("sentinel", func(t *testing.T) { sentinel(t, p) })
	t.Run("cluster", func(t *testing.T) { cluster(t, p) })
	if _, err := exec.LookPath("valkey-server"); err == nil {
		e.redisImage(t, valkeyImage, "valkey")
		t.Run("valkey", func(t *testing.T) { valkey(t, p) })
	}
}

// drawn are the values of a counter that a load was given, and the longest time without one.
type drawn struct {
	values  []int64
	longest time.Duration
}

// load adds to a counter, four callers at a time, until it is ended.
func load(t *testing.T, s func() service) (end func() drawn) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var mu sync.Mutex
	var got drawn
	last := time.Now()
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				value := s().incr(ctx, "load")
				if value == 0 {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				mu.Lock()
				got.values = append(got.values, value)
				got.longest = max(got.longest, time.Since(last))
				last = time.Now()
				mu.Unlock()
			}
		})
	}
	return func() drawn {
		cancel()
		callers.Wait()
		return got
	}
}

// check fails the test if a value came twice, or none.
func (d drawn) check(t *testing.T, during string) {
	t.Helper()
	t.Logf("%s: %d values, the longest time without one %.1f s", during, len(d.values), d.longest.Seconds())
	slices.Sort(d.values)
	if len(d.values) == 0 {
		t.Errorf("%s: no value was handed out", during)
	}
	for i := 1; i < len(d.values); i++ {
		if d.values[i] == d.values[i-1] {
			t.Errorf("%s: %d was handed out twice", during, d.values[i])
		}
	}
}

func oneRedis(t *testing.T, p, upgraded *project, released string) {
	p.down(t, "")
	p.up(t, "", "redis", "coatcheck")
	s := p.service(t, "", "coatcheck")
	s.serves(t)

	t.Log("Redis restarts, and keeps what it had")
	before := s.incr(t.Context(), "kept")
	p.compose(t, "", "restart", "redis")
	eventually(t, "the counter goes on", func() bool { return s.incr(t.Context(), "kept") > before })

	t.Log("all containers go, and come again with their volumes")
	var token struct{ Token string }
	if status, err := s.ask(t.Context(), http.MethodPost, "/token", &token); err != nil || status != http.StatusCreated {
		t.Fatalf("POST /token: got %d, %v; want 201", status, err)
	}
	p.compose(t, "", "down")
	p.up(t, "", "redis", "coatcheck")
	s = p.service(t, "", "coatcheck")
	if status, err := s.ask(t.Context(), http.MethodGet, "/token/"+token.Token, nil); err != nil || status != http.StatusOK {
		t.Errorf("GET /token/… of a token from before: got %d, %v; want 200", status, err)
	}

	upgradeUnderLoad(t, p, upgraded, released)
	stopInOrder(t, upgraded)
}

// upgradeUnderLoad replaces the service's container by one of a release's image. There is one, so
// that nothing answers between them.
func upgradeUnderLoad(t *testing.T, p, upgraded *project, released string) {
	var mu sync.Mutex
	s := p.service(t, "", "coatcheck")
	end := load(t, func() service { mu.Lock(); defer mu.Unlock(); return s })
	time.Sleep(2 * time.Second)
	upgraded.up(t, "", "coatcheck")
	mu.Lock()
	s = upgraded.service(t, "", "coatcheck") // another free port
	mu.Unlock()
	time.Sleep(2 * time.Second)
	end().check(t, "an upgrade of the service")
	image := p.docker(t, "inspect", "-f", "{{.Config.Image}}", upgraded.container(t, "", "coatcheck"))
	if image != released {
		t.Errorf("image of the service after the upgrade: got %q, want %q", image, released)
	}
}

// stopInOrder has docker stop the service under load: its process ends by itself within the grace
// period.
func stopInOrder(t *testing.T, p *project) {
	s := p.service(t, "", "coatcheck")
	id := p.container(t, "", "coatcheck")
	end := load(t, func() service { return s })
	time.Sleep(time.Second)
	began := time.Now()
	p.docker(t, "stop", "--time", "60", id)
	took := time.Since(began)
	end().check(t, "docker stop")
	state := p.docker(t, "inspect", "-f", "{{.State.ExitCode}} {{.State.OOMKilled}}", id)
	t.Logf("docker stop took %.1f s", took.Seconds())
	if state != "0 false" || took >= 60*time.Second {
		t.Errorf("docker stop: exit code and OOM %q after %v; want \"0 false\" within the grace period of 60s", state, took)
	}
}

func sentinel(t *testing.T, p *project) {
	const profile = "sentinel"
	p.down(t, profile)
	members := []string{"member-1", "member-2", "member-3", "sentinel-1", "sentinel-2", "sentinel-3", "coatcheck-sentinel"}
	p.up(t, profile, members...)
	s := p.service(t, profile, "coatcheck-sentinel")
	s.serves(t)
	master := func() string {
		out := p.docker(t, "exec", p.container(t, profile, "sentinel-1"), "redis-cli", "-p", "26379", "sentinel", "get-master-addr-by-name", "coatcheck")
		name, _, _ := strings.Cut(out, "\n")
		return strings.TrimSpace(name)
	}
	first := master()
	end := load(t, func() service { return s })
	time.Sleep(2 * time.Second)
	p.docker(t, "kill", p.container(t, profile, first))
	eventually(t, "another member is master", func() bool { return master() != first })
	eventually(t, "values are handed out again", func() bool { return s.incr(t.Context(), "load") > 0 })
	time.Sleep(2 * time.Second)
	end().check(t, "the master is killed")
	p.up(t, profile, first) // healthy means: it follows the new master
	p.compose(t, profile, "stop")
	p.up(t, profile, members...)
	p.service(t, profile, "coatcheck-sentinel").serves(t)
}

func cluster(t *testing.T, p *project) {
	const profile = "cluster"
	p.down(t, profile)
	p.compose(t, profile, "up", "-d", "--no-build", "coatcheck-cluster")
	s := p.service(t, profile, "coatcheck-cluster")
	s.serves(t)
	var first string
	eventually(t, "a node is master of the counter's slot", func() bool { first = masterOf(t, p, profile, "load"); return first != "" })
	id := p.container(t, profile, first)
	end := load(t, func() service { return s })
	time.Sleep(2 * time.Second)
	p.docker(t, "kill", id)
	eventually(t, "another node is master of the slot", func() bool { now := masterOf(t, p, profile, "load"); return now != "" && now != first })
	// with ack 1 the new master hands nothing out until it has a replica
	p.docker(t, "start", id)
	eventually(t, "values are handed out again", func() bool { return s.incr(t.Context(), "load") > 0 })
	time.Sleep(2 * time.Second)
	end().check(t, "the master of a slot is killed, and comes back as a replica")
}

// masterOf is the node that has a counter's slot; "" while none answers for it.
func masterOf(t *testing.T, p *project, profile, key string) string {
	t.Helper()
	for _, node := range []string{"node-1", "node-2", "node-3", "node-4", "node-5", "node-6"} {
		id := p.container(t, profile, node)
		out, err := p.try(t.Context(), "docker", "exec", id, "redis-cli", "exists", "coatcheck:counter:{"+key+"}")
		role, _ := p.try(t.Context(), "docker", "exec", id, "redis-cli", "info", "replication")
		if err == nil && !strings.Contains(out, "MOVED") && strings.Contains(role, "role:master") {
			return node
		}
	}
	return ""
}

func valkey(t *testing.T, p *project) {
	p.down(t, "valkey")
	p.up(t, "valkey", "valkey", "coatcheck-valkey")
	p.service(t, "valkey", "coatcheck-valkey").serves(t)
}
