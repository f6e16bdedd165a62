package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
		code, _, stderr := coatcheck(t, nil, append([]string{"config", "check", "--listen", row.listen}, row.args...)...)
		if row.fault == "" && code != done || row.fault != "" && (code != usage || !strings.Contains(stderr, row.fault) || !strings.Contains(stderr, "--insecure")) {
			t.Errorf("%s %v: %d %s", row.listen, row.args, code, stderr)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // if it starts, it ends
	defer cancel()
	var stdout, stderr strings.Builder
	code := run(ctx, []string{"serve", "--listen", "0.0.0.0:0"}, func(string) string { return "" }, &stdout, &stderr)
	if code != usage || !strings.Contains(stderr.String(), "can be reached from other machines") {
		t.Errorf("serve: %d %s", code, stderr.String())
	}
}

func TestInsecureIsWarnedOfAtEachStart(t *testing.T) {
	p := serve(t, "--listen", "0.0.0.0:0", "--insecure")
	if len(p.banner.Warnings) != 2 || !strings.Contains(p.banner.Warnings[0], "encrypt it") {
		t.Errorf("%q", p.banner.Warnings)
	}
	if people := p.banner.people(&config{}); !strings.Contains(people, "WARNING     insecure: other machines can reach this service; encrypt it") {
		t.Errorf("%s", people)
	}
	p.stop()
	if log := p.stderr.String(); strings.Count(log, "insecure: other machines") != 2 {
		t.Errorf("%s", log)
	}
}

func TestSettingsOfAccessThatDoNotGoTogether(t *testing.T) {
	keys := "--access-keys=a:use:p::" + anyHash
	for _, row := range []struct {
		args  []string
		fault string
	}{
		{[]string{"--access", "none.yaml"}, "access: open none.yaml"},
		{[]string{"--access-store"}, "access-store: nobody but the service"},
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
	} {
		if code, _, stderr := coatcheck(t, nil, append([]string{"config", "check"}, row.args...)...); code != usage || !strings.Contains(stderr, row.fault) {
			t.Errorf("%v: %d %s", row.args, code, stderr)
		}
	}
	if code, _, stderr := coatcheck(t, nil, "config", "check", keys, "--rate", "5/s", "--burst", "9", "--cors-origins", "https://a.example,http://localhost:3000"); code != done {
		t.Errorf("%d %s", code, stderr)
	}
}

// On SIGHUP the file is read again: a new key is good at once, and a file with a fault changes nothing.
func TestFileOfKeysIsReadAgainOnHangup(t *testing.T) {
	blue, green := newKey(t, "--principal", "orders"), newKey(t, "--principal", "orders")
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keys:\n" + recordYAML(blue.Record))
	p := serve(t, "--access", file)
	status := func(made madeKey) int { return p.do("POST", "/incr/k", "", "X-API-Key: "+made.Key).status }
	if status(blue) != 200 || status(green) != 401 {
		t.Errorf("%d, %d", status(blue), status(green))
	}
	hangup := func() {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	write("keys:\n" + recordYAML(green.Record))
	hangup()
	eventually(t, "the new key is good and the old one is not", func() bool { return status(green) == 200 && status(blue) == 401 })
	write("keys:\n" + recordYAML(blue.Record) + "    color: blue\n")
	hangup()
	eventually(t, "the fault is told", func() bool { return strings.Contains(p.stderr.String(), "unknown field") })
	if status(blue) != 401 || status(green) != 200 {
		t.Errorf("%d, %d", status(blue), status(green))
	}
}
