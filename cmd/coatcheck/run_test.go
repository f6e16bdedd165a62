package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

func TestWrongUsageIsExitCodeTwo(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"serve", "--nonsense"}, {"serve", "extra"}, {"version", "extra"}, {"config", "nonsense"}, {"serve", "--ack"}} {
		if code, _, stderr := coatcheck(t, nil, args...); code != usage || !strings.Contains(stderr, "coatcheck help") {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}

func TestVersionForPeopleAndMachines(t *testing.T) {
	code, stdout, _ := coatcheck(t, nil, "version")
	if code != done || !strings.HasPrefix(stdout, "coatcheck ") {
		t.Errorf("%d %s", code, stdout)
	}
	code, stdout, _ = coatcheck(t, nil, "version", "--json")
	var v versions
	if err := json.Unmarshal([]byte(stdout), &v); code != done || err != nil || v.Go == "" {
		t.Errorf("%d %s %v", code, stdout, err)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"help", "serve"}, {"config"}, {"completion", "bash"}} {
		if code, stdout, stderr := coatcheck(t, nil, args...); code != done || len(stdout) < 100 {
			t.Errorf("%v: %d %s %s", args, code, stdout, stderr)
		}
	}
}

func TestBannerSaysWhatCanBeLostAndWhatToTry(t *testing.T) {
	p := serve(t)
	if p.banner.Store != "embedded" || !strings.Contains(p.banner.Durability, "WARNING: in memory only") || p.banner.Problem != "" {
		t.Errorf("%+v", p.banner)
	}
	people := p.banner.people(&config{dev: true})
	for _, part := range []string{p.banner.URL, "curl", "WARNING", "/payments", "curl " + p.banner.URL + "/id/snowflake/orders\n"} {
		if !strings.Contains(people, part) {
			t.Errorf("%q is missing in\n%s", part, people)
		}
	}
	if people := p.banner.people(&config{idPool: "default"}); !strings.Contains(people, "curl "+p.banner.URL+"/id/snowflake\n") {
		t.Errorf("no ids to try in\n%s", people)
	}
	if a := p.do("GET", "/id/snowflake", ""); a.status != 200 {
		t.Errorf("what the banner says to try: %d %s", a.status, a.body)
	}
}

// A server that stops gives its worker id back, and the next one under the same identity has it at once, behind the last id of the first.
func TestServeStampsUnderItsIdentityAndGivesItsWorkerIDBackAtItsEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := []string{"--redis", redis.URL(), "--identity", "orders-0", "--id-pool", "orders", "--new-pools", "trust"}
	var first, second wire.Snowflakes
	one, other := serve(t, args...), serve(t, append(args, "--identity", "orders-1")...)
	eventually(t, "ids are stamped", func() bool { return other.do("GET", "/id/snowflake", "").status == 200 })
	one.do("GET", "/id/snowflake?n=10000", "").into(t, &first)
	var ring wire.WorkerRing
	one.do("GET", "/worker/orders?n=2", "").into(t, &ring)
	if slot := ring.Slots[first.WorkerID]; slot.State != "held" || slot.Holder != "orders-0" || ring.Used != 2 {
		t.Errorf("%+v", ring)
	}
	if code := one.stop(); code != done {
		t.Fatalf("exit code %d\n%s", code, one.stderr)
	}
	other.do("GET", "/worker/orders?n=2", "").into(t, &ring)
	if slot := ring.Slots[first.WorkerID]; slot.State != "free" || slot.Holder != "orders-0" {
		t.Errorf("%+v", ring)
	}
	again := serve(t, args...)
	again.do("GET", "/id/snowflake", "").into(t, &second)
	if second.WorkerID != first.WorkerID || second.ID <= first.IDs[len(first.IDs)-1] {
		t.Errorf("worker id %d from %s, then %d up to %s", second.WorkerID, second.ID, first.WorkerID, first.IDs[len(first.IDs)-1])
	}
}

// On a real Redis an unknown pool waits, unless the operator says otherwise.
func TestServeOnARedisWaitsOutTheQuarantineOfAnUnknownPool(t *testing.T) {
	t.Parallel()
	p := serve(t, "--redis", redistest.Start(t).URL())
	a := p.do("GET", "/id/snowflake", "")
	if a.status != 503 || a.code() != wire.PoolQuarantined || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if a := p.do("GET", "/readyz", ""); a.status != 200 || !strings.Contains(string(a.body), `"state":"waiting"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := p.do("PUT", "/worker/default", ""); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	eventually(t, "ids are stamped", func() bool { return p.do("GET", "/id/snowflake", "").status == 200 })
}

func TestServeComesUpWithoutItsRedisAndSaysSo(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	p := serve(t, "--redis", redis.URL())
	if p.banner.Problem == "" || !strings.Contains(p.banner.people(&config{}), "PROBLEM") {
		t.Errorf("%+v", p.banner)
	}
	if a := p.do("GET", "/incr/a", ""); a.status != 503 || a.code() != wire.StoreUnavailable {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := p.do("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("readyz %d %s", a.status, a.body)
	}
	redis.Restart()
	eventually(t, "it recovers by itself", func() bool { return p.do("GET", "/incr/a", "").status == 200 })
}

func TestPortInUseSaysWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	code, _, stderr := coatcheck(t, nil, "serve", "--listen", listener.Addr().String())
	if code != failed || !strings.Contains(stderr, "--listen") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestHealthcheck(t *testing.T) {
	p := serve(t)
	address := strings.TrimPrefix(p.banner.URL, "http://")
	_, port, _ := net.SplitHostPort(address)
	for _, listen := range []string{address, "0.0.0.0:" + port, ":" + port} {
		if code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_LISTEN": listen}, "healthcheck"); code != done || !strings.Contains(stdout, `"ready":true`) {
			t.Errorf("%s: %d %s %s", listen, code, stdout, stderr)
		}
	}
	p.kill()
	if code, _, stderr := coatcheck(t, map[string]string{"COATCHECK_LISTEN": address}, "healthcheck"); code != failed || !strings.Contains(stderr, "not reachable") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestDataDirOfAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	serve(t, "--data-dir", dir)
	if code, _, stderr := coatcheck(t, nil, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir); code != failed || !strings.Contains(stderr, dir) {
		t.Errorf("%d %s", code, stderr)
	}
}
