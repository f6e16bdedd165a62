package cli

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

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func hangup(t *testing.T, p *process) {
	t.Helper()
	p.signal(syscall.SIGHUP)
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	expect.NoError(t, "write the file", os.WriteFile(path, []byte(text), 0o600))
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

// wrote checks how often the process has said something.
func (p *process) wrote(times int, text string) {
	p.t.Helper()
	if n := p.logged(text); n != times {
		p.t.Errorf("the log says %q %d times, want %d:\n%s", text, n, times, p.stderr)
	}
}

// On SIGHUP the file of settings is read again: keys, rates, origins, the level of the log and the
// place of the certificate are taken, all others are said to need a restart.
func TestSettingsAreReadAgainOnHangup(t *testing.T) {
	t.Parallel()
	blue, green := newKey(t, "--principal", "orders"), newKey(t, "--principal", "bills")
	one, two := certify(t, "one"), certify(t, "two")
	settings := func(keys, more string, at pair) string {
		return fmt.Sprintf("# ours\naccess-keys: %q\ntls-cert: %s\ntls-key: %s\n%s", keys, at.cert, at.key, more)
	}
	path := file(t, settings(lineOf(t, blue), "", one))
	p := serveProcess(t, "--config", path)
	address := strings.TrimPrefix(p.banner.URL, "https://")
	status := func(made madeKey, headers ...string) answer {
		a, err := overTLS(t, p.banner.URL+"/incr/k", one, two, append(headers, "X-API-Key: "+made.Key)...)
		expect.NoError(t, "ask over TLS", err)
		return a
	}
	expect.MustEqual(t, "statuses with a key of the settings, and with another, at the beginning", [2]int{status(blue).status, status(green).status}, [2]int{200, 401})
	expect.MustEqual(t, "the certificate at the beginning", subject(t, address), "one")

	both := lineOf(t, blue) + "," + lineOf(t, green)
	overwrite(t, path, settings(both, "rate: 1/h\ncors-origins: https://shop.example\nlog-level: warn\nprefix: 'other:'\nmax-body-bytes: 2048\n", two))
	hangup(t, p)
	eventually(t, "the new settings are in force", func() bool { return subject(t, address) == "two" && status(green).status != 401 })
	eventually(t, "the rate counts", func() bool { return status(green).status == 429 })
	const origin = "https://shop.example"
	expect.Equal(t, "Access-Control-Allow-Origin of a request from "+origin, status(blue, "Origin: "+origin).header.Get("Access-Control-Allow-Origin"), origin)
	p.wrote(1, `restart needed","setting":"prefix"`)
	p.wrote(1, `restart needed","setting":"max-body-bytes"`)
	p.wrote(2, "restart needed")
	lines := p.logged(aRequest)
	status(blue)
	expect.Equal(t, "requests in a log of what is above info", p.logged(aRequest), lines)

	wrong := settings("nonsense", "rate: fast\ncors-origins: '*'\nlog-level: info\nlogg-level: info\n", one)
	overwrite(t, path, wrong)
	hangup(t, p)
	expect.Eventually(t, "each fault is told", func() bool {
		return p.logged("access-keys (") == 1 && p.logged("rate (") == 1 && p.logged("cors-origins (") == 1 && p.logged("is log-level meant?") == 1
	})
	p.wrote(4, "those that were read before stay in force")
	expect.Equal(t, "the certificate after a wrong file", subject(t, address), "two")
	status(green).is(t, "a request above the rate after a wrong file", 429)
	p.wrote(lines, aRequest)

	overwrite(t, path, "access-keys: ''\ntls-cert: ''\ntls-key: ''\n")
	hangup(t, p)
	expect.Eventually(t, "access and TLS are not turned off by a slip", func() bool {
		return p.logged(`"setting":"access-keys"`) == 1 && p.logged(`"setting":"tls-cert"`) == 1 && p.logged(`"setting":"tls-key"`) == 1
	})
	status(madeKey{Key: "cck_none"}).is(t, "a request with an unknown key", 401)
	p.endsWell()
}

// A certificate that cannot be read takes the other new settings with it: all of them are taken,
// or none.
func TestNewSettingsAreTakenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	blue := newKey(t, "--principal", "orders")
	at := certify(t, "localhost")
	rest := fmt.Sprintf("tls-cert: %s\ntls-key: %s\n", at.cert, at.key)
	path := file(t, "access-keys: '"+lineOf(t, blue)+"'\n"+rest)
	p := serveProcess(t, "--config", path)
	get := func() int {
		a, err := overTLS(t, p.banner.URL+"/incr/k", at, at, "X-API-Key: "+blue.Key)
		expect.NoError(t, "ask over TLS", err)
		return a.status
	}
	other := newKey(t, "--principal", "orders")
	overwrite(t, path, "access-keys: '"+lineOf(t, other)+"'\ntls-cert: none.pem\ntls-key: none.key\nlog-level: error\n")
	hangup(t, p)
	expect.Eventually(t, "it is told", func() bool { return p.logged("new settings cannot be taken") == 1 && p.logged("none.pem") > 0 })
	expect.Equal(t, "status with the key that was good before a certificate that is missing", get(), 200)
	overwrite(t, path, "access: none.yaml\naccess-keys: '"+lineOf(t, blue)+"'\n"+rest)
	hangup(t, p)
	expect.Eventually(t, "a missing file of keys is told", func() bool { return p.logged("new settings cannot be taken") == 2 && p.logged("none.yaml") > 0 })
	expect.Equal(t, "status with the key that was good before a file of keys that is missing", get(), 200)
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
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, body}, err
}

// The gateway takes another routes file and another level of its log, and tells what needs a
// restart.
func TestGatewayReadsItsSettingsAgainOnHangup(t *testing.T) {
	t.Parallel()
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	first, second := file(t, payRoutes), file(t, "routes:\n  - match: POST /buy/{name}\n")
	path := file(t, "routes: "+first+"\n")
	g := startGatewayProcess(t, "--upstream", upstream.URL, "--config", path)
	// it wants a key
	guarded := func(path string) bool { return g.do("POST", path, "x").status == http.StatusBadRequest }
	both := func() [2]bool { return [2]bool{guarded("/pay/a"), guarded("/buy/a")} }
	expect.MustEqual(t, "/pay/a and /buy/a are guarded at the beginning", both(), [2]bool{true, false})
	overwrite(t, path, "routes: "+second+"\nbody-timeout: 5s\nlog-level: error\n")
	hangup(t, g.process)
	expect.Eventually(t, "the other file is in force", func() bool { return both() == [2]bool{false, true} })
	expect.Eventually(t, "a restart is asked for", func() bool { return g.logged(`restart needed","setting":"body-timeout"`) == 1 })
	lines := g.logged(aRequest)
	guarded("/buy/a")
	expect.Equal(t, "requests in a log of errors", g.logged(aRequest), lines)
	overwrite(t, path, "routes: "+file(t, "routes: none\n")+"\nlog-level: info\n")
	hangup(t, g.process)
	expect.Eventually(t, "the fault is told", func() bool { return g.logged("new settings cannot be taken") == 1 })
	expect.Equal(t, "/pay/a and /buy/a are guarded after a wrong file", both(), [2]bool{false, true})
	g.wrote(lines, aRequest)
	overwrite(t, second, payRoutes)
	hangup(t, g.process)
	expect.Eventually(t, "the file in force is read again", func() bool { return guarded("/pay/a") })
}
