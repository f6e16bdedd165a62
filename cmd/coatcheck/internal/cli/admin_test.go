package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// page is the reply to a caller without a key.
func page(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	expect.NoError(t, "ask the service", err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	expect.NoError(t, "read the answer", err)
	return response.StatusCode, string(text)
}

// A client that reaches the admin listener sees probes, metrics and profiles without a key; at the
// listener of clients there are no profiles, and metrics take a key.
func TestProfilesAreAtTheAdminListenerAlone(t *testing.T) {
	p := serve(t, "--admin-listen", "127.0.0.1:0", "--access-keys", "a:use:p::"+anyHash)
	for path, want := range map[string]struct {
		status, clients int
		says            string
	}{
		"/livez":                {200, 200, `"ok"`},
		"/readyz":               {200, 200, `"ready":true`},
		"/metrics":              {200, 401, "coatcheck_build_info{"},
		"/debug/pprof/":         {200, 404, "goroutine"},
		"/debug/pprof/heap":     {200, 404, ""},
		"/debug/pprof/symbol":   {200, 404, "num_symbols"},
		"/debug/pprof/cmdline":  {404, 404, ""}, // there can be passwords in one
		"/debug/pprof/nonsense": {404, 404, ""},

		"/debug/pprof/profile?seconds=301":  {400, 404, "up to 300 seconds"},
		"/debug/pprof/trace?seconds=300.01": {400, 404, "up to 300 seconds"},
		"/debug/pprof/trace?seconds=NaN":    {400, 404, "up to 300 seconds"},
		"/debug/pprof/heap?seconds=1e9":     {400, 404, "up to 300 seconds"},
		"/debug/pprof/trace?seconds=0.01":   {200, 404, ""},
		"/debug/vars":                       {404, 404, ""},
		"/incr/k":                           {404, 401, ""},
		"/console/":                         {404, 200, ""},
		"/debug/pprof/../../incr/":          {404, 404, ""},
	} {
		status, body := page(t, p.banner.AdminURL+path)
		expect.Equal(t, "status of "+path+" at the admin listener", status, want.status)
		expect.Contains(t, path+" at the admin listener", body, want.says)
		status, _ = page(t, p.banner.URL+path)
		expect.Equal(t, "status of "+path+" at the clients' listener", status, want.clients)
	}
	expect.Contains(t, "the banner for people", p.banner.people(&config.Service{}), "admin       "+p.banner.AdminURL+"/readyz")
}

// A profile that is being taken keeps others out, and does not hold the stop up.
func TestOneProfileIsTakenAtATimeAndEndsWithTheProcess(t *testing.T) {
	p := serve(t, "--admin-listen", "127.0.0.1:0")
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		close(began)
		for status := 429; status == 429; { // one of those below can be first
			response, err := client.Get(p.banner.AdminURL + "/debug/pprof/trace?seconds=300")
			if err != nil {
				return
			}
			status = response.StatusCode
			_, _ = io.Copy(io.Discard, response.Body) // it is cut off
			_ = response.Body.Close()
		}
	}()
	<-began
	// every other one waits, since each can take as much memory as the process has
	eventually(t, "the profile is being taken", func() bool {
		for _, path := range []string{"heap", "goroutine?debug=2", "allocs?debug=1", "trace?seconds=0.01", "profile?seconds=1"} {
			if status, body := page(t, p.banner.AdminURL+"/debug/pprof/"+path); status != 429 || !strings.Contains(body, "one at a time") {
				return false
			}
		}
		return true
	})
	p.endsWell()
	<-ended
}

func TestAdminListenerIsOffUnlessAsked(t *testing.T) {
	p := serve(t)
	expect.Equal(t, "the admin URL in the banner", p.banner.AdminURL, "")
	lacks(t, "the banner for people", p.banner.people(&config.Service{}), "admin")
	status, _ := page(t, p.banner.URL+"/debug/pprof/")
	expect.Equal(t, "status of /debug/pprof/ at the clients' listener", status, 404)
}

func TestAdminListenerIsOnLoopbackUnlessInsecure(t *testing.T) {
	routes := file(t, payRoutes)
	for _, row := range []struct {
		admin string
		args  []string
		fault string // "" = in order
	}{
		{"127.0.0.1:9091", nil, ""},
		{"[::1]:9091", nil, ""},
		{"localhost:0", nil, ""},
		{"0.0.0.0:9091", nil, "can be reached from other machines, and asks no caller for a key"},
		{":9091", nil, "can be reached from other machines"},
		{"192.0.2.1:9091", nil, "can be reached from other machines"},
		{"0.0.0.0:9091", []string{"--insecure"}, ""},
		{"127.0.0.1:7000", []string{"--listen", "127.0.0.1:7000"}, "is where clients come in"},
		{"nowhere", nil, "is not host:port"},
		{"127.0.0.1:x", nil, "is not "}, // host:port, or a number
	} {
		for _, command := range [][]string{
			{"config", "check", "--admin-listen", row.admin},
			{"config", "check", "gateway", "--admin-listen", row.admin, "--upstream", "http://127.0.0.1:1", "--routes", routes},
		} {
			checked := execute(t, nil, append(command, row.args...)...)
			if row.fault == "" {
				checked.exits(done)
			} else {
				checked.exits(usage, "admin", row.fault)
			}
		}
	}
}

func TestAdminListenerThatIsTaken(t *testing.T) {
	p := serve(t, "--admin-listen", "127.0.0.1:0")
	taken := strings.TrimPrefix(p.banner.AdminURL, "http://")
	execute(t, nil, "serve", "--listen", "127.0.0.1:0", "--admin-listen", taken).exits(failed, "choose another address with --admin-listen")
}

func TestGatewayHasProfilesAtItsAdminSide(t *testing.T) {
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	g := runGateway(t, upstream.URL, payRoutes)
	status, body := page(t, g.banner.AdminURL+"/debug/pprof/")
	expect.Equal(t, "status of /debug/pprof/ at the admin side", status, 200)
	expect.Contains(t, "/debug/pprof/ at the admin side", body, "goroutine")
	status, _ = page(t, g.banner.AdminURL+"/debug/pprof/cmdline")
	expect.Equal(t, "status of /debug/pprof/cmdline at the admin side", status, 404)
	if status, _ := page(t, g.banner.URL+"/debug/pprof/"); status != http.StatusTeapot {
		t.Errorf("clients get %d, and not what the upstream has there", status)
	}
}

// What the processes do is in their metrics: the store of each tells the registry that is shown.
func TestProcessesCountWhatTheyDo(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.answers(200, "GET", "/incr/orders", "")
	_, body := page(t, p.banner.URL+"/metrics")
	for _, line := range []string{`coatcheck_counter_increments_total 1`, `coatcheck_redis_calls_total{outcome="ok",script="counter_begin"} 1`} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("the service's metrics have no %s", line)
		}
	}

	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	g := runGateway(t, upstream.URL, payRoutes)
	g.answers(201, "POST", "/pay/one", "{}", `Idempotency-Key: "one"`)
	if _, body := page(t, g.banner.AdminURL+"/metrics"); !strings.Contains(body, "coatcheck_token_claims_total{outcome=\"granted\"} 1\n") {
		t.Error("the gateway's metrics do not count the claim")
	}
}
