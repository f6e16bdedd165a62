package main

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// benched runs bench for machines.
func benched(t *testing.T, args ...string) (code int, report benchReport, stderr string) {
	t.Helper()
	code, stdout, stderr := coatcheck(t, nil, append([]string{"bench", "--json", "--warm-up", "0s"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%d %s %s: %v", code, stdout, stderr, err)
	}
	return code, report, stderr
}

func TestBenchMeasuresEachKindOfCall(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL(), "--new-pools", "trust")
	for _, at := range [][]string{{"--server", p.banner.URL}, {"--redis", redis.URL()}} {
		for _, what := range benchKinds {
			code, report, stderr := benched(t, append(at, "--what", what, "--requests", "60", "--concurrency", "4", "--keys", "3", "--store-timeout", "30s")...)
			l := report.Latency
			if code != done || report.What != what || report.Requests != 60 || report.Failed != 0 || report.Throughput <= 0 || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max || report.Delay != nil {
				t.Errorf("%s %s: %d %+v %s", at[0], what, code, report, stderr)
			}
		}
	}
	keys := redis.Client().Keys(t.Context(), "*{bench:*").Val()
	if len(keys) < 9 { // three counters, tags and pools at least
		t.Errorf("%q", keys)
	}
	for _, key := range redis.Client().Keys(t.Context(), "*:{*}*").Val() {
		if strings.Contains(key, "counter:{") && !strings.Contains(key, "{bench:") {
			t.Errorf("a name that does not begin with bench: %s", key)
		}
	}
	code, stdout, stderr := coatcheck(t, nil, "bench", "clean", "--redis", redis.URL())
	if left := redis.Client().Keys(t.Context(), "*{bench:*").Val(); code != done || !strings.HasPrefix(stdout, "Removed ") || len(left) != 0 {
		t.Errorf("%d %s%s: %q", code, stdout, stderr, left)
	}
	if pools := redis.Client().ZRange(t.Context(), "coatcheck:workers:{names}", 0, -1).Val(); len(pools) != 1 { // that of the service
		t.Errorf("%q", pools)
	}
}

func TestBenchCleansUpAfterItself(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	for _, at := range [][]string{{"--server", p.banner.URL}, {"--redis", redis.URL()}} {
		code, report, _ := benched(t, append(at, "--requests", "20", "--keys", "2")...)
		if code != done || !strings.Contains(report.Left, "bench:") {
			t.Errorf("%d %+v", code, report)
		}
		code, report, _ = benched(t, append(at, "--requests", "20", "--keys", "2", "--clean")...)
		if left := redis.Client().Keys(t.Context(), "coatcheck:counter:{bench:*}").Val(); code != done || report.Left != "" || len(left) != 0 {
			t.Errorf("%d %+v: %q", code, report, left)
		}
	}
	// A service does not remove pools: what is left is said.
	if code, report, _ := benched(t, "--server", p.banner.URL, "--what", benchWorker, "--requests", "5", "--clean"); code != done || report.Left != staysPool {
		t.Errorf("%d %+v", code, report)
	}
}

func TestBenchWithARateWritesItsFiles(t *testing.T) {
	p := serve(t)
	dir := t.TempDir()
	rows, svg, picture := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.png")
	code, report, stderr := benched(t, "--server", p.banner.URL, "--rate", "50", "--duration", "1s", "--csv", rows, "--plot", svg)
	if code != done || report.Rate != 50 || report.Requests+report.Failed+report.Unsent != 50 || report.Delay == nil {
		t.Fatalf("%d %+v %s", code, report, stderr)
	}
	text, err := os.ReadFile(rows)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	requests := int64(0)
	for _, line := range lines[1:] {
		n, _ := strconv.ParseInt(line[1], 10, 64)
		requests += n
	}
	if err != nil || len(lines) < 2 || lines[0][0] != "end_s" || requests != report.Requests {
		t.Errorf("%v %q", err, lines)
	}
	text, err = os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := benched(t, "--server", p.banner.URL, "--requests", "10", "--plot", picture); code != done {
		t.Fatal(stderr)
	}
	file, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := png.Decode(file); err != nil {
		t.Error(err)
	}
}

func TestBenchForPeople(t *testing.T) {
	p := serve(t)
	for args, says := range map[string][]string{
		"--requests 30":                 {"incr at " + p.banner.URL + ": closed loop, 16 callers", "requests     30\n", "p50 ", "p99.9 ", "errors       0\n", "--rate measures", "Left behind: counters"},
		"--requests 5 --rate 50":        {"50.0/s, open loop", "from the moment that each call was meant for"},
		"--requests 5 --what token":     {"token at"},
		"--duration 50ms --what lock":   {"lock at"},
		"--requests 5 --what guard":     {"until the service forgets its answer.\n"},
		"--requests 3 --concurrency 1 ": {"1 callers"},
	} {
		code, stdout, stderr := coatcheck(t, nil, append(strings.Fields("bench --warm-up 0s "+args), "--server", p.banner.URL)...)
		if code != done || stderr != "" {
			t.Errorf("%s: %d %s", args, code, stderr)
		}
		for _, part := range says {
			if !strings.Contains(stdout, part) {
				t.Errorf("%s: %q is missing in\n%s", args, part, stdout)
			}
		}
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
	code, report, _ := benched(t, "--server", moody.URL, "--requests", "40", "--concurrency", "2")
	if code != done || report.Requests != 20 || report.Failed != 20 || report.Errors["too-many-requests"] != 10 || report.Errors["status-502"] != 10 || report.Failures == nil {
		t.Errorf("%d %+v", code, report)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if code, report, stderr := benched(t, "--server", gone.URL, "--requests", "5"); code != tryLater || report.Errors["unreachable"] != 5 || !strings.Contains(stderr, "no call succeeded") {
		t.Errorf("%d %+v %s", code, report, stderr)
	}
}

func TestBenchWhatCanNotBeMeant(t *testing.T) {
	for args, says := range map[string]string{
		"--what nonsense": "what", "--rate 0": "rate", "--rate -1": "rate", "--rate NaN": "rate", "--rate x": "rate", "--concurrency 0": "concurrency", "--keys 0": "keys",
		"--duration x": "duration", "--requests 0": "requests", "--plot a.gif": ".svg or .png", "--server http://h --redis redis://h": "name one of them", "--redis embedded:": "embedded",
		"extra": "unexpected", "clean": "--redis URL", "clean --server http://h": "--redis URL",
	} {
		if code, stdout, stderr := coatcheck(t, nil, append([]string{"bench"}, strings.Fields(args)...)...); code != usage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d %s%s", args, code, stdout, stderr)
		}
	}
}

// The service's limit has the same name, and is not taken for the load's rate.
func TestBenchTakesItsRateFromTheCommandLineAlone(t *testing.T) {
	p := serve(t)
	path := file(t, "rate: 7/s\n")
	code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_RATE": "100/s"}, "bench", "--json", "--warm-up", "0s", "--requests", "5", "--server", p.banner.URL, "--config", path)
	var report benchReport
	if err := json.Unmarshal([]byte(stdout), &report); code != done || err != nil || report.Rate != 0 {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

// Ctrl-C ends it in good order.
func TestASignalEndsBenchWithWhatWasMeasured(t *testing.T) {
	p := serve(t)
	r := start(t, "bench", "--json", "--warm-up", "0s", "--duration", "1h", "--server", p.banner.URL)
	eventually(t, "the load has begun", func() bool { return p.do("GET", "/counter/bench:incr:0", "").status == http.StatusOK })
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	code := r.code()
	var report benchReport
	if err := json.Unmarshal([]byte(r.stdout.String()), &report); err != nil || code != done || !report.Interrupted || report.Requests == 0 || report.Failed != 0 {
		t.Errorf("%d %s%s %v", code, r.stdout, r.stderr, err)
	}
}
