package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// benched runs bench for machines, which has to end with an exit code and to say each part.
func benched(t *testing.T, code int, args []string, stderr ...string) (report benchReport) {
	t.Helper()
	ran := execute(t, nil, append([]string{"bench", "--json", "--warm-up", "0s"}, args...)...).exits(code, stderr...)
	ran.into(&report)
	return report
}

func TestBenchMeasuresEachKindOfCall(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL(), "--new-pools", "trust", "--store-timeout", "30s")
	for _, at := range [][]string{{"--server", p.banner.URL}, {"--redis", redis.URL()}} {
		for _, what := range benchKinds {
			report := benched(t, done, append(at, "--what", what, "--requests", "60", "--concurrency", "4", "--keys", "3", "--store-timeout", "30s"))
			asked := "bench " + at[0] + " --what " + what
			expect.Equal(t, "kind in "+asked, report.What, what)
			expect.Equal(t, "requests in "+asked, report.Requests, 60)
			expect.Equal(t, "failed ones in "+asked, report.Failed, 0)
			l := report.Latency
			if report.Throughput <= 0 || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
				t.Errorf("%s: got throughput %v and latency %+v, want a throughput and latencies in order", asked, report.Throughput, l)
			}
			if report.Delay != nil {
				t.Errorf("%s: got delays %+v of a closed loop, which has none", asked, report.Delay)
			}
		}
	}
	keys := redis.Client().Keys(t.Context(), "*{bench:*").Val()
	if len(keys) < 9 { // three counters, tags and pools at least
		t.Errorf("keys that bench has made: got %q, want 9 at least", keys)
	}
	for _, key := range redis.Client().Keys(t.Context(), "*:{*}*").Val() {
		if strings.Contains(key, "counter:{") && !strings.Contains(key, "{bench:") {
			t.Errorf("a name that does not begin with bench: %s", key)
		}
	}
	execute(t, nil, "bench", "clean", "--redis", redis.URL()).exits(done).prints("Removed ")
	expect.Equal(t, "keys after bench clean", redis.Client().Keys(t.Context(), "*{bench:*").Val(), []string{})
	pools := redis.Client().ZRange(t.Context(), "coatcheck:workers:{names}", 0, -1).Val()
	expect.Equal(t, "pools after bench clean", pools, []string{"default"}) // that of the service
}

func TestBenchCleansUpAfterItself(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	for _, at := range [][]string{{"--server", p.banner.URL}, {"--redis", redis.URL()}} {
		report := benched(t, done, append(at, "--requests", "20", "--keys", "2"))
		expect.Contains(t, "what bench "+at[0]+" says that it leaves", report.Left, "bench:")
		report = benched(t, done, append(at, "--requests", "20", "--keys", "2", "--clean"))
		expect.Equal(t, "what bench --clean "+at[0]+" says that it leaves", report.Left, "")
		left := redis.Client().Keys(t.Context(), "coatcheck:counter:{bench:*}").Val()
		expect.Equal(t, "counters after bench --clean "+at[0], left, []string{})
	}
	// A service does not remove pools: what is left is said.
	report := benched(t, done, []string{"--server", p.banner.URL, "--what", benchWorker, "--requests", "5", "--clean"})
	expect.Equal(t, "what bench --what worker says that it leaves", report.Left, staysPool)
}

func TestBenchWithARateReportsDelays(t *testing.T) {
	t.Parallel()
	p := serve(t)
	report := benched(t, done, []string{"--server", p.banner.URL, "--rate", "50", "--duration", "1s"})
	expect.Equal(t, "rate in the report", report.Rate, 50)
	expect.Equal(t, "calls in the report of 50 a second for a second", report.Requests+report.Failed+report.Unsent, 50)
	if report.Delay == nil {
		t.Errorf("bench --rate 50: got no delays in %+v", report)
	}
}

func TestBenchForPeople(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for args, says := range map[string][]string{
		"--requests 30":                       {"incr at " + p.banner.URL + ": closed loop, 16 callers", "requests     30\n", "p50 ", "p99.9 ", "errors       0\n", "--rate measures", "Left behind: counters"},
		"--requests 5 --rate 50":              {"50.0/s, open loop", "from the moment that each call was meant for"},
		"--requests 5 --what token":           {"token at"},
		"--duration 3s --rate 20 --what lock": {"lock at"}, // a busy machine makes a call in that
		"--requests 5 --what guard":           {"until the service forgets its answer.\n"},
		"--requests 3 --concurrency 1 ":       {"1 callers"},
	} {
		ran := execute(t, nil, append(strings.Fields("bench --warm-up 0s "+args), "--server", p.banner.URL)...)
		ran.exits(done).prints(says...)
		expect.Equal(t, "stderr of "+ran.line, ran.stderr, "")
	}
}

// A service that fails on purpose: its failures are counted by their codes, and end nothing.
func TestBenchCountsFailuresByTheirCodes(t *testing.T) {
	var n atomic.Int64
	moody := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"type":"/problems/too-many-requests","title":"t","status":429,"code":"too-many-requests","retryable":true}`)
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"key":"bench:incr:0","value":1,"first":1}`)
		}
	}))
	defer moody.Close()
	report := benched(t, done, []string{"--server", moody.URL, "--requests", "40", "--concurrency", "2"})
	expect.Equal(t, "requests that succeed", report.Requests, 20)
	expect.Equal(t, "requests that fail", report.Failed, 20)
	expect.Equal(t, "failures by their codes", report.Errors, map[string]int64{"too-many-requests": 10, "status-502": 10})
	if report.Failures == nil {
		t.Errorf("got no latencies of failures in %+v", report)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	report = benched(t, tryLater, []string{"--server", gone.URL, "--requests", "5"}, "no call succeeded")
	expect.Equal(t, "failures at a service that is gone", report.Errors, map[string]int64{"unreachable": 5})
}

func TestBenchWhatCanNotBeMeant(t *testing.T) {
	for args, says := range map[string]string{
		"--what nonsense": "what", "--rate 0": "rate", "--rate -1": "rate", "--rate NaN": "rate", "--rate x": "rate", "--concurrency 0": "concurrency", "--keys 0": "keys",
		"--duration x": "duration", "--requests 0": "requests", "--server http://h --redis redis://h": "name one of them", "--redis embedded:": "embedded",
		"extra": "unexpected", "clean": "--redis URL", "clean --server http://h": "--redis URL",
	} {
		refused := execute(t, nil, append([]string{"bench"}, strings.Fields(args)...)...).exits(usage, says)
		expect.Equal(t, "stdout of "+refused.line, refused.stdout, "")
	}
}

// The service's limit has the same name, and is not taken for the load's rate.
func TestBenchTakesItsRateFromTheCommandLineAlone(t *testing.T) {
	p := serve(t)
	path := file(t, "rate: 7/s\n")
	var report benchReport
	execute(t, map[string]string{"COATCHECK_RATE": "100/s"},
		"bench", "--json", "--warm-up", "0s", "--requests", "5", "--server", p.banner.URL, "--config", path).exits(done).into(&report)
	expect.Equal(t, "rate in the report", report.Rate, 0)
}

// Ctrl-C ends it in good order.
func TestASignalEndsBenchWithWhatWasMeasured(t *testing.T) {
	p := serve(t)
	r := start(t, "bench", "--json", "--warm-up", "0s", "--duration", "1h", "--concurrency", "1", "--server", p.banner.URL)
	eventually(t, "the load has begun", func() bool { return p.do("GET", "/counter/bench:incr:0", "").status == http.StatusOK })
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	r.exits(done)
	var report benchReport
	if err := json.Unmarshal([]byte(r.stdout.String()), &report); err != nil {
		t.Fatalf("the report of a bench that was interrupted: %v in %s", err, r.stdout)
	}
	expect.Equal(t, "interrupted", report.Interrupted, true)
	expect.Equal(t, "failed requests", report.Failed, 0)
	if report.Requests == 0 {
		t.Errorf("got no requests in the report %+v", report)
	}
}
