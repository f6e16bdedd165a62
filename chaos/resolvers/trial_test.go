//go:build check && linux

package resolvers

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// front is a gateway, and another one in its place when it was killed.
type front struct {
	mu     sync.Mutex
	now    *chaostest.Service
	killed map[*chaostest.Service]bool
}

func (f *front) process() *chaostest.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// wasKilled reports whether a request to a process may go without an answer.
func (f *front) wasKilled(process *chaostest.Service) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.killed[process]
}

// trial is a service behind two gateways, all of which break under load.
type trial struct {
	t        *testing.T
	resolves bool // the route has a resolver
	runs     int
	service  *service
	redis    *redistest.SentinelSet
	gateways [2]*front
	routes   string     // the gateways' file
	lot      *rand.Rand // of the faults
	mix      *rand.Rand // of the order of requests
	web      *http.Client

	faults []string // that are made

	book
	struck      map[string]int
	resolutions map[string]int // by the gateways' counters
	began       time.Time
	faulted     time.Time // the end of the last fault
}

// startTrial starts everything.
func startTrial(t *testing.T, of kind, resolves bool, environment ...string) *trial {
	t.Helper()
	tr := &trial{
		t: t, began: time.Now(), resolves: resolves, lot: chaostest.NewLot(t), faults: faults, struck: map[string]int{}, resolutions: map[string]int{}, book: newBook(),
		web: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	tr.mix = chaostest.Another(tr.lot)
	tr.redis = redistest.StartSentinel(t, 1)
	chaostest.WatchSentinels(t, tr.redis, downAfter)
	tr.service = startService(t, of, environment...)
	resolve := ""
	if resolves {
		resolve = `, resolve: "PUT /operations/{operation}"`
	}
	routes := fmt.Sprintf("routes: [{match: POST /payments, lease_ms: %d, upstream_timeout_ms: %d, max_wait_ms: 60000%s}]\n",
		lease.Milliseconds(), limit.Milliseconds(), resolve)
	tr.routes = filepath.Join(t.TempDir(), "routes.yaml")
	expect.NoError(t, "writing routes", os.WriteFile(tr.routes, []byte(routes), 0o600))
	for i := range tr.gateways {
		tr.gateways[i] = &front{killed: map[*chaostest.Service]bool{}}
		tr.startGateway(tr.gateways[i])
	}
	return tr
}

func (tr *trial) startGateway(f *front) {
	command := exec.Command(chaostest.Coatcheck(tr.t), "gateway", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--upstream", "http://"+tr.service.address(), "--routes", tr.routes, "--redis", tr.redis.URL(), "--ack", "all",
		"--store-timeout", storeTimeout.String(), "--log-level", "warn", "--access-log", "none")
	process := chaostest.Serve(tr.t, command)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = process
}

// The faults.
const (
	workerKilled   = "worker killed"
	serviceKilled  = "service killed"
	gatewayKilled  = "gateway killed"
	masterKilled   = "master killed"
	workerStopped  = "worker stopped"
	gatewayStopped = "gateway stopped"
	masterStopped  = "master stopped"
)

var (
	kills  = []string{workerKilled, serviceKilled, gatewayKilled, masterKilled}
	stops  = []string{workerStopped, gatewayStopped, masterStopped}
	faults = slices.Concat(kills, stops)
)

// strike breaks something, and returns what makes it whole again.
func (tr *trial) strike(fault string) (mend func()) {
	tr.struck[fault]++
	tr.t.Logf("%4.0f s: %s", time.Since(tr.began).Seconds(), fault)
	switch fault {
	case workerKilled:
		tr.service.signal(tr.lot.IntN, syscall.SIGKILL)
		return func() {}
	case workerStopped:
		pid := tr.service.signal(tr.lot.IntN, syscall.SIGSTOP)
		return func() {
			time.Sleep(pause)
			tr.service.wake(pid)
		}
	case serviceKilled:
		tr.service.kill()
		return tr.service.start
	case gatewayKilled:
		return tr.killGateway(tr.gateways[tr.lot.IntN(2)])
	}
	back := func() {}
	switch fault {
	case gatewayStopped: // for longer than its leases
		process := tr.gateways[tr.lot.IntN(2)].process()
		process.Stop()
		return func() {
			time.Sleep(lease + lease/3)
			process.Resume()
		}
	case masterKilled:
		back = chaostest.KillMaster(tr.redis)
	case masterStopped: // it goes on when a replica has taken its place
		back = chaostest.PauseMaster(tr.redis)
	}
	return func() {
		back()
		chaostest.Await(tr.t, time.Minute, func() string { return chaostest.Confirm(tr.t.Context(), tr.redis.WaitForMaster(nil), 1) })
	}
}

// killGateway kills a gateway, and returns what starts another one in its place.
func (tr *trial) killGateway(f *front) (mend func()) {
	tr.count(f)
	process := f.process()
	f.mu.Lock()
	f.killed[process] = true
	f.mu.Unlock()
	process.Kill()
	return func() { tr.startGateway(f) }
}

// order returns the faults of a run: all of them, and then more, as many as there are blocks.
func (tr *trial) order(blocks int) (order []string) {
	for len(order) < blocks {
		for _, i := range tr.lot.Perm(len(tr.faults)) {
			order = append(order, tr.faults[i])
		}
	}
	return order[:blocks]
}

const (
	clientsAtOnce = 48
	blockKeys     = 20 // at most
)

// run sends all requests of all keys, mixed in blocks, and breaks something in each of them, when
// the first requests of its keys are under way.
func (tr *trial) run() {
	tr.runs++
	blocks := max(len(tr.faults), *keys/blockKeys)
	tasks := make(chan task)
	var clients, mending sync.WaitGroup
	for range clientsAtOnce {
		clients.Go(func() {
			for one := range tasks {
				tr.pay(one)
			}
		})
	}
	for block, fault := range tr.order(blocks) {
		order := tr.tasks(block**keys/blocks, (block+1)**keys/blocks)
		for i, one := range order {
			tasks <- one
			if i == min(clientsAtOnce/2, len(order)-1) {
				mending.Wait()
				mending.Go(func() {
					tr.strike(fault)()
					tr.faulted = time.Now()
				})
			}
		}
	}
	close(tasks)
	clients.Wait()
	mending.Wait()
	tr.leaveAlone()
}

// loneKeys are asked for once, at a gateway that is killed meanwhile: their doubts stand on the
// list alone.
const loneKeys = 4

// loneMark begins the name of a key whose payment takes half as long as the gateway waits.
const loneMark = "lone"

func (tr *trial) lone(n int) string { return fmt.Sprintf("%s-%d-%d", loneMark, tr.runs, n) }

// leaveAlone kills a gateway while the service has the lone requests that came through it.
func (tr *trial) leaveAlone() {
	f := tr.gateways[0]
	before := granted(tr.metrics(f))
	var asking sync.WaitGroup
	for n := range loneKeys {
		asking.Go(func() {
			for code := "store-unavailable"; code == "store-unavailable"; {
				_, code, _ = tr.ask(task{key: tr.lone(n)}, f)
			}
		})
	}
	chaostest.Await(tr.t, time.Minute, func() string {
		if n := granted(tr.metrics(f)) - before; n < loneKeys {
			return fmt.Sprintf("%d lone requests are under way", n)
		}
		return ""
	})
	tr.struck[gatewayKilled]++
	tr.killGateway(f)()
	asking.Wait()
	tr.faulted = time.Now()
}

// task is what a client is to do.
type task struct {
	key  string
	nth  int  // of its clients
	once bool // it sends its request once, and goes away
}

// once reports whether a key is asked for once.
func once(n int) bool { return n%10 == 7 }

// name is the key of an order, which no other run of the trial has.
func (tr *trial) name(n int) string { return fmt.Sprintf("order-%d-%04d", tr.runs, n) }

// tasks are those of some keys, mixed.
func (tr *trial) tasks(from, to int) (order []task) {
	for n := from; n < to; n++ {
		if once(n) {
			order = append(order, task{key: tr.name(n), once: true})
			continue
		}
		for nth := range *duplicates {
			order = append(order, task{key: tr.name(n), nth: nth})
		}
	}
	tr.mix.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// Lines of a gateway's metrics.
var (
	resolutionsLine = regexp.MustCompile(`(?m)^coatcheck_gateway_resolutions_total\{decision="(\w+)"\} (\d+)$`)
	grantedLine     = regexp.MustCompile(`(?m)^coatcheck_token_claims_total\{outcome="granted"\} (\d+)$`)
)

func (tr *trial) metrics(f *front) string {
	response, err := tr.web.Get(f.process().Admin + "/metrics")
	expect.NoError(tr.t, "the gateway's metrics", err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	expect.NoError(tr.t, "the gateway's metrics", err)
	return string(text)
}

// granted is how many operations have begun at a gateway, by its metrics.
func granted(metrics string) (n int) {
	if line := grantedLine.FindStringSubmatch(metrics); line != nil {
		n, _ = strconv.Atoi(line[1]) // these are digits
	}
	return n
}

// count adds the counters of a gateway, which end with its process.
func (tr *trial) count(f *front) {
	for _, line := range resolutionsLine.FindAllStringSubmatch(tr.metrics(f), -1) {
		n, _ := strconv.Atoi(line[2]) // these are digits
		tr.resolutions[line[1]] += n
	}
}

// doubts is how many operations are in doubt.
func (tr *trial) doubts() int {
	tr.t.Helper()
	store, err := redisstore.OpenConfig(tr.t.Context(), redisstore.Config{URL: tr.redis.URL(), Timeout: time.Minute})
	expect.NoError(tr.t, "opening Redis", err)
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(tr.t.Context())
	found, err := tokens.Doubts(tr.t.Context())
	expect.NoError(tr.t, "the list of doubts", err)
	return found.Operations
}

// awaitLeases waits until what a gateway that was killed had begun is in doubt, or has ended.
func (tr *trial) awaitLeases() {
	tr.t.Helper()
	chaostest.Await(tr.t, time.Minute, func() string {
		if since := time.Since(tr.faulted); since < lease+time.Second {
			return fmt.Sprintf("leases may not have lapsed %v after the last fault", since.Round(time.Second))
		}
		return ""
	})
}

// settled waits until no operation is in doubt, a minute from the last fault on at most, and
// returns how many are then, and how long it took.
func (tr *trial) settled() (left int, after time.Duration) {
	tr.t.Helper()
	tr.awaitLeases()
	for {
		left, after = tr.doubts(), time.Since(tr.faulted)
		if left == 0 || after > time.Minute {
			return left, after
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// figures is what a run came to, in the order of the table of docs/proof.md.
func (tr *trial) figures(left int, f findings) (cells []string) {
	with := "yes"
	if !tr.resolves {
		with = "no"
	}
	cells = []string{tr.service.kind.name, with, fmt.Sprintf("%d × %d", *keys, *duplicates), tr.times(kills), tr.times(stops)}
	for _, how := range []string{"completed", "not_begun", "in_vain"} {
		cells = append(cells, strconv.Itoa(tr.resolutions[how]))
	}
	return append(cells, strconv.Itoa(left), strconv.Itoa(f.unanswered), strconv.Itoa(f.wrong), strconv.Itoa(f.twice))
}

// times are how often some faults were made, in their order.
func (tr *trial) times(of []string) string {
	var each []string
	for _, fault := range of {
		each = append(each, strconv.Itoa(tr.struck[fault]))
	}
	return strings.Join(each, " · ")
}

// finish waits for the doubts to end, asks once more for every key, and judges.
func (tr *trial) finish() (left int, f findings) {
	tr.t.Helper()
	if tr.resolves {
		var after time.Duration
		left, after = tr.settled()
		tr.t.Logf("no doubt was left %v after the last fault: %v", after.Round(100*time.Millisecond), left == 0)
		tr.askAgain()
		// then each runs again, and is told what it has done
		chaostest.Do(tr.t, tr.redis.Master(), "FLUSHALL")
		tr.askAgain()
	} else {
		tr.awaitLeases()
		left = tr.doubts()
	}
	for _, f := range tr.gateways {
		tr.count(f)
	}
	f = tr.judge(tr.service.payments(), tr.resolves)
	tr.t.Logf("%s", strings.Join(tr.figures(left, f), " | "))
	return left, f
}

// askAgain asks for each key at each gateway: also for those that nobody has repeated.
func (tr *trial) askAgain() {
	var asking sync.WaitGroup
	places := make(chan struct{}, clientsAtOnce)
	var all []string
	for n := range *keys {
		all = append(all, tr.name(n))
	}
	for n := range loneKeys {
		all = append(all, tr.lone(n))
	}
	for _, key := range all {
		for nth := range tr.gateways {
			asking.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				tr.pay(task{key: key, nth: *duplicates + nth})
			})
		}
	}
	asking.Wait()
}
