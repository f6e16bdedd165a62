package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func hangup(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// lineOf is a key's record as --access-keys takes it.
func lineOf(t *testing.T, made madeKey) string {
	t.Helper()
	line, ok := made.Record.Line()
	if !ok {
		t.Fatalf("%+v has no line", made.Record)
	}
	return line
}

// aRequest is in the line of each request in a log as JSON.
const aRequest = `"msg":"request"`

// logged counts what the process has said.
func (p *process) logged(text string) int { return strings.Count(p.stderr.String(), text) }

// On SIGHUP the file of settings is read again: keys, rates, origins, the level of the log and the place of the certificate are taken, all others are said to need a restart.
func TestSettingsAreReadAgainOnHangup(t *testing.T) {
	t.Parallel()
	blue, green := newKey(t, "--principal", "orders"), newKey(t, "--principal", "bills")
	one, two := certify(t, "one"), certify(t, "two")
	settings := func(keys, more string, at pair) string {
		return fmt.Sprintf("# ours\naccess-keys: %q\ntls-cert: %s\ntls-key: %s\n%s", keys, at.cert, at.key, more)
	}
	path := file(t, settings(lineOf(t, blue), "", one))
	p := serve(t, "--config", path)
	address := strings.TrimPrefix(p.banner.URL, "https://")
	status := func(made madeKey, headers ...string) answer {
		a, err := overTLS(t, p.banner.URL+"/incr/k", one, two, append(headers, "X-API-Key: "+made.Key)...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if status(blue).status != 200 || status(green).status != 401 || subject(t, address) != "one" {
		t.Fatal("it does not begin as it is set")
	}

	both := lineOf(t, blue) + "," + lineOf(t, green)
	overwrite(t, path, settings(both, "rate: 1/h\ncors-origins: https://shop.example\nlog-level: warn\nprefix: 'other:'\nmax-body: 2048\n", two))
	hangup(t, p)
	eventually(t, "the new settings are in force", func() bool { return subject(t, address) == "two" && status(green).status != 401 })
	eventually(t, "the rate counts", func() bool { return status(green).status == 429 })
	if a := status(blue, "Origin: https://shop.example"); a.header.Get("Access-Control-Allow-Origin") != "https://shop.example" {
		t.Errorf("%v", a.header)
	}
	for _, name := range []string{"prefix", "max-body"} {
		if p.logged(`restart needed","setting":"`+name+`"`) != 1 {
			t.Errorf("a restart for %s is not asked for:\n%s", name, p.stderr)
		}
	}
	if p.logged("restart needed") != 2 {
		t.Errorf("%s", p.stderr)
	}
	lines := p.logged(aRequest)
	status(blue)
	if p.logged(aRequest) != lines {
		t.Error("the log still holds what is below warn")
	}

	wrong := settings("nonsense", "rate: fast\ncors-origins: '*'\nlog-level: info\nlogg-level: info\n", one)
	overwrite(t, path, wrong)
	hangup(t, p)
	eventually(t, "each fault is told", func() bool {
		return p.logged("access-keys (") == 1 && p.logged("rate (") == 1 && p.logged("cors-origins (") == 1 && p.logged("is log-level meant?") == 1
	})
	if p.logged("those that were read before stay in force") != 4 || subject(t, address) != "two" || status(green).status != 429 || p.logged(aRequest) != lines {
		t.Errorf("a wrong file has changed something:\n%s", p.stderr)
	}

	overwrite(t, path, "access-keys: ''\ntls-cert: ''\ntls-key: ''\n")
	hangup(t, p)
	eventually(t, "access and TLS are not turned off by a slip", func() bool {
		return p.logged(`"setting":"access-keys"`) == 1 && p.logged(`"setting":"tls-cert"`) == 1 && p.logged(`"setting":"tls-key"`) == 1
	})
	if status(madeKey{Key: "cck_none"}).status != 401 {
		t.Error("everybody is let in")
	}
	if code := p.stop(); code != done {
		t.Errorf("exit code %d", code)
	}
}

// A certificate that can not be read takes the other new settings with it: all of them are taken, or none.
func TestNewSettingsAreTakenTogetherOrNotAtAll(t *testing.T) {
	blue := newKey(t, "--principal", "orders")
	at := certify(t, "localhost")
	rest := fmt.Sprintf("tls-cert: %s\ntls-key: %s\n", at.cert, at.key)
	path := file(t, "access-keys: '"+lineOf(t, blue)+"'\n"+rest)
	p := serve(t, "--config", path)
	get := func() int {
		a, err := overTLS(t, p.banner.URL+"/incr/k", at, at, "X-API-Key: "+blue.Key)
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	other := newKey(t, "--principal", "orders")
	overwrite(t, path, "access-keys: '"+lineOf(t, other)+"'\ntls-cert: none.pem\ntls-key: none.key\nlog-level: error\n")
	hangup(t, p)
	eventually(t, "it is told", func() bool { return p.logged("new settings can not be taken") == 1 && p.logged("none.pem") > 0 })
	if status := get(); status != 200 {
		t.Errorf("%d", status)
	}
	overwrite(t, path, "access: none.yaml\naccess-keys: '"+lineOf(t, blue)+"'\n"+rest)
	hangup(t, p)
	eventually(t, "a missing file of keys is told", func() bool { return p.logged("new settings can not be taken") == 2 && p.logged("none.yaml") > 0 })
	if status := get(); status != 200 {
		t.Errorf("%d", status)
	}
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	overwrite(t, keys, "keys:\n"+recordYAML(other.Record))
	overwrite(t, path, "access: "+keys+"\n"+rest)
	hangup(t, p)
	eventually(t, "a file takes over from the environment's keys", func() bool { return get() == 401 })
	overwrite(t, keys, "keys:\n"+recordYAML(blue.Record))
	eventually(t, "and is followed from then on", func() bool { return get() == 200 })
}

// overTLS asks a service that may show either certificate.
func overTLS(t *testing.T, url string, one, two pair, headers ...string) (answer, error) {
	t.Helper()
	trusted := one.pool(t)
	text, err := os.ReadFile(two.cert)
	if err != nil {
		return answer{}, err
	}
	trusted.AppendCertsFromPEM(text)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		return answer{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, body}, err
}

// The gateway takes another routes file and another level of its log, and tells what needs a restart.
func TestGatewayReadsItsSettingsAgainOnHangup(t *testing.T) {
	t.Parallel()
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	first, second := file(t, payRoutes), file(t, "routes:\n  - match: POST /buy/{name}\n")
	path := file(t, "routes: "+first+"\n")
	g := startGateway(t, "--upstream", upstream.URL, "--config", path)
	guarded := func(path string) bool { return g.do("POST", path, "x").status == http.StatusBadRequest } // it wants a key
	if !guarded("/pay/a") || guarded("/buy/a") {
		t.Fatal("it does not begin as it is set")
	}
	overwrite(t, path, "routes: "+second+"\nbody-timeout: 5s\nlog-level: error\n")
	hangup(t, g.process)
	eventually(t, "the other file is in force", func() bool { return guarded("/buy/a") && !guarded("/pay/a") })
	eventually(t, "a restart is asked for", func() bool { return g.logged(`restart needed","setting":"body-timeout"`) == 1 })
	lines := g.logged(aRequest)
	guarded("/buy/a")
	if g.logged(aRequest) != lines {
		t.Error("the log still holds what is below error")
	}
	overwrite(t, path, "routes: "+file(t, "routes: none\n")+"\nlog-level: info\n")
	hangup(t, g.process)
	eventually(t, "the fault is told", func() bool { return g.logged("new settings can not be taken") == 1 })
	if !guarded("/buy/a") || guarded("/pay/a") || g.logged(aRequest) != lines {
		t.Errorf("a wrong file has changed something:\n%s", g.stderr)
	}
	overwrite(t, second, payRoutes)
	hangup(t, g.process)
	eventually(t, "the file in force is read again", func() bool { return guarded("/pay/a") })
}
