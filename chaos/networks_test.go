//go:build nightly && linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

var keys = flag.Int("keys", 300, "operations of the test of two networks at least; faults go on until all are known")

// withinNetworks is set where the test runs within a network namespace of its own.
const withinNetworks = "CHAOS_NETWORKS"

// TestNothingRunsTwiceOverTwoNetworks has a Sentinel set, gateways and services with the middleware
// in two network namespaces. Between these packets are dropped for a while, in silence; masters are
// killed, stopped until another is promoted, and replaced by hand. Each key is used by several
// clients at both networks. No handler begins twice, and each operation in doubt has begun.
//
// It needs root, or a kernel that gives users namespaces, util-linux and iproute2. The test runs
// itself again within a namespace: nothing is left behind.
func TestNothingRunsTwiceOverTwoNetworks(t *testing.T) {
	if os.Getenv(withinNetworks) == "" {
		runInNamespace(t, t.Name())
		return
	}
	n := startNetworks(t)
	var load sync.WaitGroup
	for i := range seekers {
		load.Go(func() { n.seek(i) })
	}
	known := make(chan struct{})
	go func() {
		defer close(known)
		load.Wait()
	}()
	n.faults(known)
	n.rig.ready()
	n.judge()
}

// runInNamespace runs a test of this binary in a network namespace of its own.
func runInNamespace(t *testing.T, name string) {
	t.Helper()
	words := []string{"--net", "--kill-child", os.Args[0], "-test.run=^" + name + "$", "-test.v", "-test.timeout=50m", fmt.Sprint("-keys=", *keys)}
	if os.Geteuid() != 0 {
		words = append([]string{"--map-root-user"}, words...)
	}
	command := exec.CommandContext(t.Context(), "unshare", words...)
	command.Env = append(os.Environ(), withinNetworks+"=yes")
	out, err := command.CombinedOutput()
	// quoted, so that nobody takes them for lines of this test's own
	t.Logf("it says%s", strings.ReplaceAll("\n"+strings.TrimSpace(string(out)), "\n", "\n| "))
	expect.NoError(t, "the test in its namespace", err)
	expect.Contains(t, "what it says", string(out), "--- PASS: "+name)
}

// networks are two network namespaces. The test's own stands between them and passes packets on.
type networks struct {
	t    *testing.T
	rig  *rig
	web  *http.Client
	left atomic.Int64 // keys that no client has asked for yet
	met  atomic.Bool  // each kind of fault has struck

	mu  sync.Mutex
	all []*networkOperation

	struck map[string]int
}

// networkOperation is an operation and the last answer of each of its clients.
type networkOperation struct {
	*operation

	doors   []*front
	answers []answer
}

const sides = 2

func startNetworks(t *testing.T) *networks {
	t.Helper()
	system(t, "ip", "link", "set", "lo", "up")
	pass(t, true)
	var hosts [sides]redistest.Host
	for i := range hosts {
		hosts[i] = startSide(t, i+1)
	}
	r := &rig{t: t, binary: chaostest.Coatcheck(t), book: openBook(t, "10.98.1.1")}
	near, far := hosts[0], hosts[1]
	r.redis = redistest.StartSentinelOn(t, []redistest.Host{near, near, far}, []redistest.Host{near, far, far})
	r.watch = chaostest.WatchSentinels(t, r.redis, downAfter)
	r.ready()
	before := r.serveUpstream(fmt.Sprintf("routes:\n- {match: POST /hold, policy: hold, lease_ms: %d, upstream_timeout_ms: 15000}\n", longLease.Milliseconds()))
	for i, host := range hosts {
		r.gateways = append(r.gateways, newFront(fmt.Sprint("gateway ", i+1), func() *child {
			words := append(enter(host, r.binary), "gateway", "--json", "--listen", host.Address+":0", "--redis", r.redis.URL(), "--ack", "all",
				"--store-timeout", storeTimeout.String(), "--log-level", "warn")
			return launch(t, nil, words[0], append(words[1:], before...)...)
		}))
		r.owners = append(r.owners, newFront(fmt.Sprint("service ", i+1), func() *child {
			words := enter(host, os.Args[0])
			return launch(t, []string{"CHAOS_BOOK=" + r.book.url, chaostest.RoleVariable + "=" + ownerRole, "CHAOS_LEASE=" + longLease.String(),
				"CHAOS_STORE=" + r.redis.URL(), "CHAOS_ACK=-1", "CHAOS_HOST=" + host.Address}, words[0], words[1:]...)
		}))
	}
	n := &networks{t: t, rig: r, web: web(t), struck: map[string]int{}}
	n.left.Store(int64(*keys))
	return n
}

// startSide makes a namespace, which reaches the others by this one.
func startSide(t *testing.T, number int) redistest.Host {
	t.Helper()
	keeper := chaostest.Start(t, exec.Command("unshare", "--net", "sleep", "infinity"))
	own, err := os.Readlink("/proc/self/ns/net")
	expect.NoError(t, "reading the name of a namespace", err)
	file := fmt.Sprintf("/proc/%d/ns/net", keeper.Pid())
	chaostest.Await(t, time.Minute, func() string {
		if its, err := os.Readlink(file); err != nil || its == own {
			return "there is no other namespace yet"
		}
		return ""
	})
	host := redistest.Host{Address: fmt.Sprintf("10.98.%d.2", number), Enter: []string{"nsenter", "--net=" + file}}
	link, here := fmt.Sprint("side", number), fmt.Sprintf("10.98.%d.1", number)
	system(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(keeper.Pid()))
	system(t, "ip", "addr", "add", here+"/24", "dev", link)
	system(t, "ip", "link", "set", link, "up")
	for _, words := range []string{"link set lo up", "addr add " + host.Address + "/24 dev eth0", "link set eth0 up", "route add default via " + here} {
		system(t, enter(host, "ip", strings.Fields(words)...)...)
	}
	return host
}

// enter is a command within a host.
func enter(host redistest.Host, program string, args ...string) []string {
	return append(append(append([]string(nil), host.Enter...), program), args...)
}

func system(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
}

// pass has packets between the two networks passed on, or dropped.
func pass(t *testing.T, on bool) {
	t.Helper()
	expect.NoError(t, "net.ipv4.ip_forward", os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(map[bool]string{true: "1", false: "0"}[on]), 0o644))
}

// faults strike one after the other, until each kind has struck and all keys are known.
func (n *networks) faults(known <-chan struct{}) {
	kinds := []struct {
		name   string
		strike func()
	}{
		{"cut off in silence", func() {
			pass(n.t, false)
			time.Sleep(3*downAfter + rand.N(3*time.Second))
			pass(n.t, true)
		}},
		{"master stopped", func() { chaostest.PauseMaster(n.rig.redis)() }},
		{"cut off for a moment", func() {
			pass(n.t, false)
			time.Sleep(rand.N(downAfter))
			pass(n.t, true)
		}},
		{"master killed", func() { chaostest.KillMaster(n.rig.redis)() }},
		{"replaced by hand", func() { chaostest.ReplaceMaster(n.t.Context(), n.t, n.rig.redis) }},
		{"replaced by hand, and cut off meanwhile", func() {
			chaostest.AskForFailover(n.t.Context(), n.t, n.rig.redis)
			pass(n.t, false)
			time.Sleep(3 * downAfter)
			pass(n.t, true)
		}},
	}
	for round := 0; ; round++ {
		for _, kind := range kinds {
			if round > 0 {
				select {
				case <-known:
					return
				default:
				}
			}
			time.Sleep(rand.N(2 * time.Second))
			kind.strike()
			n.struck[kind.name]++
			n.rig.ready()
		}
		n.met.Store(true)
	}
}

// seek has one key after the other used, each by two clients at both networks.
func (n *networks) seek(number int) {
	for i := 0; n.left.Add(-1) >= 0 || !n.met.Load(); i++ {
		doors := [][]*front{n.rig.gateways, n.rig.owners}[i%2]
		o := &networkOperation{operation: &operation{name: fmt.Sprintf("key-%d-%d", number, i), policy: "hold"}, doors: doors, answers: make([]answer, sides)}
		n.rig.book.expect(o.operation)
		n.mu.Lock()
		n.all = append(n.all, o)
		n.mu.Unlock()
		var clients sync.WaitGroup
		for side := range sides {
			clients.Go(func() {
				time.Sleep(rand.N(30 * time.Millisecond)) // a double click is not quite at once
				o.answers[side] = n.settle(o, side)
			})
		}
		clients.Wait()
		time.Sleep(rand.N(400 * time.Millisecond))
	}
}

// settle asks for an operation until its end is known, at one network and then at the other.
func (n *networks) settle(o *networkOperation, side int) (a answer) {
	ctx, cancel := context.WithTimeout(n.t.Context(), roundLimit)
	defer cancel()
	for at := side; ctx.Err() == nil; at++ {
		process, name := o.doors[at%sides].process()
		a = answer{operation: o.name, client: fmt.Sprint("client ", side), front: name, sent: time.Now()}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, process.URL+"/hold", strings.NewReader(o.name+" of 12.99"))
		if err != nil {
			panic(err) // the URL is a process's own
		}
		request.Header.Set(byKey, o.name)
		exchange(n.web, request, &a)
		if a.settled() {
			return a
		}
		time.Sleep(50*time.Millisecond + rand.N(200*time.Millisecond))
	}
	return a
}

// judge asks for every key again, at both networks, and looks at how often its handler began.
func (n *networks) judge() {
	figures := map[string]int{}
	for _, o := range n.all {
		for side := range sides {
			o.answers = append(o.answers, n.settle(o, side))
		}
		runs, text := len(n.rig.book.copied(o.operation).runs), ""
		if runs > 1 {
			figures["twice"]++
			n.t.Errorf("%s: its handler began %d times, want once", o.name, runs)
		}
		for _, a := range o.answers {
			switch {
			case a.status == http.StatusCreated && (text == "" || text == a.body):
				text = a.body
			case a.status == http.StatusCreated:
				n.t.Errorf("%s: %v, and before %q", o.name, a, text)
			case a.code != inDoubt || runs == 0:
				n.t.Errorf("%s, whose handler began %d times: %v", o.name, runs, a)
			}
		}
		if last := o.answers[len(o.answers)-1]; last.code == inDoubt {
			figures["in doubt"]++
		}
	}
	n.t.Logf("%d keys, %d in doubt, all of which had begun, %d twice; faults: %v", len(n.all), figures["in doubt"], figures["twice"], n.struck)
}
