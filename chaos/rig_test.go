//go:build check

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// rig is everything that is broken: a Sentinel set with two replicas, two gateways in front of one
// service, two services that guard themselves, and a server that issues tokens.
type rig struct {
	t        testing.TB
	binary   string
	redis    *redistest.SentinelSet
	watch    *sentinels
	book     *book
	issuer   *child
	upstream *front // what the gateways stand before; clients do not ask it
	gateways []*front
	owners   []*front
}

// front is a place where a process runs, and another one when that was killed.
type front struct {
	name  string
	start func() *child

	mu    sync.Mutex
	now   *child
	lives int
}

func newFront(name string, start func() *child) *front {
	f := &front{name: name, start: start}
	f.restart()
	return f
}

// process is the one that runs there now, or has been killed and not replaced yet.
func (f *front) process() (now *child, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, fmt.Sprintf("%s.%d", f.name, f.lives)
}

func (f *front) restart() {
	c := f.start()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = c
	f.lives++
}

func (f *front) kill() {
	c, _ := f.process()
	c.Kill()
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, binary: chaostest.Coatcheck(t), book: openPolicy(t), redis: redistest.StartSentinel(t, 2)}
	r.watch = watchSentinels(t, r.redis)
	folder := t.TempDir()
	routes := filepath.Join(folder, "routes.yaml")
	expect.NoError(t, "os.WriteFile", os.WriteFile(routes, []byte(routesFile(*ack, lease)), 0o600))
	socket := filepath.Join(folder, "upstream")
	r.issuer = r.coatcheck("serve", r.redis.URL(), *ack)
	r.upstream = newFront("upstream", func() *child { return r.role(upstreamRole, "CHAOS_SOCKET="+socket) })
	for _, name := range []string{"A", "B"} {
		r.gateways = append(r.gateways, newFront("gateway "+name, func() *child {
			return r.gateway(r.redis.URL(), *ack, socket, routes)
		}))
		r.owners = append(r.owners, newFront("owner "+name, func() *child {
			return r.role(ownerRole, "CHAOS_STORE="+r.redis.URL(), "CHAOS_ACK="+strconv.Itoa(*ack))
		}))
	}
	return r
}

func routesFile(ack int, lease time.Duration) string {
	var b strings.Builder
	b.WriteString("routes:\n")
	for _, policy := range []string{"hold", "takeover"} {
		fmt.Fprintf(&b, "- {match: POST /%s, policy: %s, lease_ms: %d, ack: %d, upstream_timeout_ms: 15000}\n", policy, policy, lease.Milliseconds(), ack)
	}
	return b.String()
}

// gateway starts a gateway in front of the service that listens on a socket.
func (r *rig) gateway(redis string, ack int, socket, routes string) *child {
	r.t.Helper()
	return r.coatcheck("gateway", redis, ack, "--upstream", "unix://"+socket, "--routes", routes, "--admin", "127.0.0.1:0")
}

// coatcheck starts the program with a subcommand.
func (r *rig) coatcheck(command, redis string, ack int, args ...string) *child {
	r.t.Helper()
	args = append([]string{command, "--json", "--listen", "127.0.0.1:0", "--redis", redis, "--ack", strconv.Itoa(ack),
		"--store-timeout", storeTimeout.String(), "--log-level", "warn"}, args...)
	return launch(r.t, nil, r.binary, args...)
}

// role starts this test binary in a role.
func (r *rig) role(name string, env ...string) *child {
	r.t.Helper()
	return launch(r.t, append(env, "CHAOS_BOOK="+r.book.url, chaostest.RoleVariable+"="+name, "CHAOS_LEASE="+lease.String()), os.Args[0])
}

// ready waits until Redis is whole: the sentinels agree on a master that takes writes and has both
// replicas in sync.
func (r *rig) ready() {
	r.t.Helper()
	if r.redis == nil {
		return // its Redis is not broken
	}
	chaostest.Await(r.t, time.Minute, func() string { return chaostest.Confirm(r.t.Context(), r.redis.WaitForMaster(nil), 2) })
}

// failovers tells how often the sentinels have named another master.
func (r *rig) failovers() int64 {
	if r.watch == nil {
		return 0
	}
	return r.watch.switched.Load()
}
