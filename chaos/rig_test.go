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
	watch    *chaostest.Sentinels
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
	r.watch = chaostest.WatchSentinels(t, r.redis, downAfter)
	r.issuer = r.coatcheck("serve", r.redis.URL(), *ack)
	before := r.serveUpstream(routesFile(*ack, lease))
	for _, name := range []string{"A", "B"} {
		r.gateways = append(r.gateways, newFront("gateway "+name, func() *child {
			return r.coatcheck("gateway", r.redis.URL(), *ack, before...)
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

// serveUpstream starts the service that stands behind gateways, and returns their flags for it.
func (r *rig) serveUpstream(routes string) (flags []string) {
	r.t.Helper()
	folder := r.t.TempDir()
	file, socket := filepath.Join(folder, "routes.yaml"), filepath.Join(folder, "up")
	expect.NoError(r.t, "writing routes", os.WriteFile(file, []byte(routes), 0o600))
	r.upstream = newFront("upstream", func() *child { return r.role(upstreamRole, "CHAOS_SOCKET="+socket) })
	return []string{"--upstream", "unix://" + socket, "--routes", file, "--admin-listen", "127.0.0.1:0"}
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
