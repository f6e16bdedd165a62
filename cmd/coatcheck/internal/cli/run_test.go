package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/server"
)

func TestWrongUsageIsExitCodeTwo(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"serve", "--nonsense"}, {"serve", "extra"}, {"version", "extra"}, {"config", "nonsense"}, {"serve", "--ack"}} {
		execute(t, nil, args...).exits(usage, "--help`")
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"help", "serve"}, {"config"}, {"completion", "bash"}} {
		if help := execute(t, nil, args...).exits(done); len(help.stdout) < 100 {
			t.Errorf("%s prints %d bytes, want 100 at least:\n%s", help.line, len(help.stdout), help.stdout)
		}
	}
}

func TestBannerSaysWhatCanBeLostAndWhatToTry(t *testing.T) {
	p := serve(t)
	expect.Equal(t, "store of the banner", p.banner.Store, "embedded")
	expect.Contains(t, "durability of the banner", p.banner.Durability, "WARNING: in memory only")
	expect.Equal(t, "problem of the banner", p.banner.Problem, "")
	expect.Contains(t, "banner for people of a service for trying out", p.banner.people(&config.Service{Server: server.Config{Dev: true}}),
		p.banner.URL, "curl", "WARNING", "/payments", "curl "+p.banner.URL+"/id/snowflake/orders\n")
	expect.Contains(t, "banner for people", p.banner.people(&config.Service{Server: server.Config{IDPool: "default"}}), "curl "+p.banner.URL+"/id/snowflake\n")
	p.answers(200, "GET", "/id/snowflake", "") // what the banner says to try
}

// A server that stops gives its worker id back, and the next one under the same identity has it at
// once, after the last id of the first.
func TestServeStampsUnderItsIdentityAndGivesItsWorkerIDBackAtItsEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := []string{"--redis", redis.URL(), "--identity", "orders-0", "--id-pool", "orders", "--new-pools", "trust"}
	var first, second api.Snowflakes
	one, other := serve(t, args...), serve(t, append(args, "--identity", "orders-1")...)
	eventually(t, "ids are stamped", func() bool { return other.do("GET", "/id/snowflake", "").status == 200 })
	one.answers(200, "GET", "/id/snowflake?n=10000", "").into(t, &first)
	slotOf := func(p *process) (ring api.WorkerRing, slot [2]string) {
		p.answers(200, "GET", "/worker/orders?n=2", "").into(t, &ring)
		return ring, [2]string{ring.Slots[first.WorkerID].State, ring.Slots[first.WorkerID].Holder}
	}
	ring, slot := slotOf(one)
	expect.Equal(t, "state and holder of the first one's worker id while it runs", slot, [2]string{"held", "orders-0"})
	expect.Equal(t, "used worker ids while both run", ring.Used, 2)
	one.endsWell()
	_, slot = slotOf(other)
	expect.Equal(t, "state and holder of the first one's worker id after its end", slot, [2]string{"free", "orders-0"})
	again := serve(t, args...)
	again.answers(200, "GET", "/id/snowflake", "").into(t, &second)
	if last := first.IDs[len(first.IDs)-1]; second.WorkerID != first.WorkerID || second.ID <= last {
		t.Errorf("after a restart: id %s of worker id %d, want one above %s of worker id %d", second.ID, second.WorkerID, last, first.WorkerID)
	}
}

// On a real Redis an unknown pool waits, unless the operator says otherwise.
func TestServeOnARedisWaitsOutTheQuarantineOfAnUnknownPool(t *testing.T) {
	t.Parallel()
	p := serve(t, "--redis", redistest.Start(t).URL())
	a := p.answers(503, "GET", "/id/snowflake", "")
	expect.Equal(t, "code of GET /id/snowflake", a.code(), api.PoolQuarantined)
	if a.header.Get("Retry-After") == "" {
		t.Errorf("GET /id/snowflake: no Retry-After in %v", a.header)
	}
	expect.Contains(t, "GET /readyz", string(p.answers(200, "GET", "/readyz", "").body), `"state":"waiting"`)
	p.answers(201, "PUT", "/worker/default", "")
	eventually(t, "ids are stamped", func() bool { return p.do("GET", "/id/snowflake", "").status == 200 })
}

func TestServeComesUpWithoutItsRedisAndSaysSo(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	p := serve(t, "--redis", redis.URL())
	if p.banner.Problem == "" {
		t.Errorf("the banner tells no problem: %+v", p.banner)
	}
	expect.Contains(t, "banner for people", p.banner.people(&config.Service{}), "PROBLEM")
	expect.Equal(t, "code of GET /incr/a", p.answers(503, "GET", "/incr/a", "").code(), api.StoreUnavailable)
	p.answers(503, "GET", "/readyz", "")
	redis.Restart()
	eventually(t, "it recovers by itself", func() bool { return p.do("GET", "/incr/a", "").status == 200 })
}

// The service that it asks is on this machine, where the environment's proxy is not.
func TestHealthcheckAsksNoProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	check := exec.Command(built(t), "healthcheck", "--listen", "0.0.0.1:8080") // of no machine
	check.Env = append(os.Environ(), asProgram+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	if out, err := check.CombinedOutput(); err == nil {
		t.Errorf("a service that is not there is ready: %s", out)
	}
}

// Another program at the address is not ready, whatever it answers.
func TestHealthcheckTakesOnlyTheAnswerOfACoatcheck(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for name, row := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		says   string
	}{
		"an empty object": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, "is not a coatcheck"},
		"a page":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>ready") }, "is not a coatcheck"},
		"of another":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ready":true}`) }, "is not a coatcheck"},
		"not ready": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"ready":false,"store":"embedded"}`)
		}, "not ready"},
		"a redirect to one that is ready": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, p.banner.URL+"/readyz", http.StatusFound)
		}, "302 Found"},
		"a body that never ends": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, "/readyz has not answered whole within 5s"},
	} {
		other := httptest.NewServer(http.HandlerFunc(row.answer))
		check := execute(t, nil, "healthcheck", "--listen", strings.TrimPrefix(other.URL, "http://")).exits(failed, row.says)
		lacks(t, "healthcheck, answered "+name, check.stderr, "deadline exceeded")
		other.Close()
	}
}

func TestPortInUseSaysWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen on a free port", err)
	defer func() { _ = listener.Close() }()
	execute(t, nil, "serve", "--listen", listener.Addr().String()).exits(failed, "--listen")
}

func TestHealthcheck(t *testing.T) {
	p := serve(t)
	address := strings.TrimPrefix(p.banner.URL, "http://")
	_, port, _ := net.SplitHostPort(address)
	for _, listen := range []string{address, "0.0.0.0:" + port, ":" + port} {
		execute(t, map[string]string{"COATCHECK_LISTEN": listen}, "healthcheck").exits(done).prints(`"ready":true`)
	}
	p.stop()
	execute(t, map[string]string{"COATCHECK_LISTEN": address}, "healthcheck").exits(failed, "not reachable")
}

func TestSubcommandsAreNamedAsInTheirTable(t *testing.T) {
	for _, c := range (&program{}).subcommands() {
		expect.Equal(t, "the command named "+c.name, c.make().Name(), c.name)
	}
}
