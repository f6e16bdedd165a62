package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const anyHash = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"

func TestOthersThanThisMachineAreRefusedWithoutTLSAndKeys(t *testing.T) {
	made := certify(t, "localhost")
	secure := []string{"--tls-cert", made.cert, "--tls-key", made.key}
	keys := []string{"--access-keys", "a:use:p::" + anyHash}
	join := func(lists ...[]string) (all []string) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	for _, row := range []struct {
		listen string
		args   []string
		fault  string // "" = in order
	}{
		{"127.0.0.1:0", nil, ""},
		{"localhost:0", nil, ""},
		{"[::1]:0", nil, ""},
		{"127.0.0.2:0", nil, ""},
		{"0.0.0.0:0", nil, "encrypt it (--tls-cert and --tls-key), and say who may come in"},
		{":0", nil, "encrypt it"},
		{"[::]:0", nil, "encrypt it"},
		{"192.0.2.1:0", nil, "encrypt it"},
		{"service.example:0", nil, "encrypt it"},
		{"0.0.0.0:0", secure, "say who may come in"},
		{"0.0.0.0:0", keys, "encrypt it"},
		{"0.0.0.0:0", join(secure, keys), ""},
		{"0.0.0.0:0", join(secure, []string{"--tls-client-ca", made.cert}), "say who may come in"},
		{"0.0.0.0:0", join(secure, []string{"--tls-client-ca", made.cert, "--tls-client-auth", "require"}), ""},
		{"0.0.0.0:0", []string{"--insecure"}, ""},
	} {
		checked := execute(t, nil, append([]string{"config", "check", "--listen", row.listen}, row.args...)...)
		if row.fault == "" {
			checked.exits(done)
			continue
		}
		checked.exits(usage, row.fault, "--insecure")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // if it starts, it ends
	defer cancel()
	var stdout, stderr strings.Builder
	code := run(ctx, []string{"serve", "--listen", "0.0.0.0:0"}, func(string) string { return "" }, &stdout, &stderr)
	const serving = "serve --listen 0.0.0.0:0"
	expect.Equal(t, "exit code of "+serving, code, usage)
	expect.Contains(t, "stderr of "+serving, stderr.String(), "can be reached from other machines")
}

func TestInsecureIsWarnedOfAtEachStart(t *testing.T) {
	p := serve(t, "--listen", "0.0.0.0:0", "--insecure")
	warnings := p.banner.Warnings
	if len(warnings) != 2 {
		t.Fatalf("the banner warns of %q, want two warnings", warnings)
	}
	expect.Contains(t, "first warning of the banner", warnings[0], "encrypt it")
	expect.Contains(t, "banner for people", p.banner.people(&config.Service{}), "WARNING     insecure: other machines can reach this service; encrypt it")
	p.stop()
	log := p.stderr.String()
	expect.Equal(t, "warnings in the log "+log, strings.Count(log, "insecure: other machines"), 2)
}

func TestSettingsOfAccessThatDoNotGoTogether(t *testing.T) {
	keys := "--access-keys=a:use:p::" + anyHash
	for _, row := range []struct {
		args  []string
		fault string
	}{
		{[]string{"--access", "none.yaml"}, "access: open none.yaml"},
		{[]string{"--access-store"}, "access-store: only the service"},
		{[]string{keys, "--principal-headers", "X-User"}, "principal-headers: not with access"},
		{[]string{"--rate", "5/s"}, "rate: only with access"},
		{[]string{keys, "--burst", "5"}, "burst: only with rate"},
		{[]string{keys, "--rate", "5"}, "rate (--rate): a rate is written"},
		{[]string{"--tls-cert", "a"}, "one without the other"},
		{[]string{"--tls-cert", "none.pem", "--tls-key", "none.key"}, "tls-key: open none.key"},
		{[]string{"--tls-client-ca", "a"}, "tls-client-ca: only with"},
		{[]string{"--cors-origins", "*"}, "there is no * for all"},
		{[]string{"--cors-origins", "https://*.example"}, "there is no * for all"},
		{[]string{"--cors-origins", "https://a.example/"}, "an origin is scheme"},
		{[]string{"--cors-origins", "a.example"}, "an origin is scheme"},
		{[]string{"--allowed-hosts", "a.example,b.example:80"}, `"b.example:80": a host is a name`},
		{[]string{"--allowed-hosts", "https://a.example"}, "a host is a name"},
		{[]string{"gateway", "--allowed-hosts", "A.example"}, "a host is a name"},
	} {
		execute(t, nil, append([]string{"config", "check"}, row.args...)...).exits(usage, row.fault)
	}
	execute(t, nil, "config", "check", "--allowed-hosts", "coatcheck.internal,*.example.com,localhost,*").exits(done)
	execute(t, nil, "config", "check", keys, "--rate", "5/s", "--burst", "9", "--cors-origins", "https://a.example,http://localhost:3000").exits(done)
}

// On SIGHUP the file is read again: a new key is good at once, and a file with a fault changes
// nothing.
func TestFileOfKeysIsReadAgainOnHangup(t *testing.T) {
	blue, green := newKey(t, "--principal", "orders"), newKey(t, "--principal", "orders")
	file := filepath.Join(t.TempDir(), "keys.yaml")
	overwrite(t, file, "keys:\n"+recordYAML(blue.Record))
	p := serveProcess(t, "--access", file)
	statuses := func() [2]int { // of the blue key and of the green one
		status := func(made madeKey) int { return p.do("POST", "/incr/k", "", "X-API-Key: "+made.Key).status }
		return [2]int{status(blue), status(green)}
	}
	expect.Equal(t, "statuses with a key of the file and with another", statuses(), [2]int{200, 401})
	overwrite(t, file, "keys:\n"+recordYAML(green.Record))
	hangup(t, p)
	expect.Eventually(t, "the new key is good and the old one is not", func() bool { return statuses() == [2]int{401, 200} })
	overwrite(t, file, "keys:\n"+recordYAML(blue.Record)+"    color: blue\n")
	hangup(t, p)
	expect.Eventually(t, "the fault is told", func() bool { return strings.Contains(p.stderr.String(), "unknown field") })
	expect.Equal(t, "statuses with the old key and with the new one after a file with a fault", statuses(), [2]int{401, 200})
}
