package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/internal/expect"
)

// A service that takes no client without a certificate is asked by commands that show one, by flags or by the environment.
func TestCommandsShowAClientCertificate(t *testing.T) {
	at, mine := certify(t, "localhost"), certify(t, "orders.internal")
	access := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(access, []byte("certificates:\n- {dns: orders.internal, principal: orders, role: admin}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key, "--tls-client-ca", mine.cert, "--tls-client-auth", "require", "--access", access)
	where := []string{"--server", p.banner.URL, "--ca", at.cert}
	shown := append(slices.Clone(where), "--cert", mine.cert, "--key", mine.key)
	with := func(flags []string, command ...string) []string { return append(slices.Clone(command), flags...) }

	expect.Equal(t, "incr k with a certificate", execute(t, nil, with(shown, "incr", "k")...).exits(done).stdout, "1\n")
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL, "COATCHECK_CA": at.cert, "COATCHECK_CERT": mine.cert, "COATCHECK_KEY": mine.key}
	expect.Equal(t, "counter get k, the certificate in the environment", execute(t, env, "counter", "get", "k").exits(done).stdout, "1\n")
	for _, command := range [][]string{
		{"token", "issue"}, {"worker", "ls"}, {"lock", "ls"}, {"id", "segment", "orders"},
		{"doctor", "--fail-on", "never"}, {"bench", "--requests", "5", "--concurrency", "1", "--warm-up", "0s"},
	} {
		execute(t, nil, with(shown, command...)...).exits(done)
	}
	if without := execute(t, nil, with(where, "incr", "k")...); without.code == done {
		t.Errorf("%s without a certificate: got exit code %d, want a failure; it wrote %s%s", without.line, done, without.stdout, without.stderr)
	}

	other, none := certify(t, "orders.internal"), filepath.Join(t.TempDir(), "none.pem")
	for _, row := range []struct {
		cert, key, fault string
	}{
		{mine.cert, "", "cert and key: one without the other"},
		{"", mine.key, "cert and key: one without the other"},
		{none, mine.key, "cert: open " + none},
		{mine.cert, none, "key: open " + none},
		{mine.cert, other.key, "private key does not match"},
		{mine.key, mine.key, "cert and key: "},
	} {
		for _, command := range [][]string{{"incr", "k"}, {"doctor"}, {"bench"}} {
			execute(t, nil, append(with(where, command...), "--cert="+row.cert, "--key="+row.key)...).exits(usage, row.fault)
		}
	}
	faulty := execute(t, nil, "incr", "k", "--server", p.banner.URL, "--ca", none, "--cert", none, "--key", none).exits(usage)
	expect.Equal(t, "files that are not there, told at once", strings.Count(faulty.stderr, "open "+none), 3)
	if strange := execute(t, nil, with(where, "incr", "k", "--cert", other.cert, "--key", other.key)...); strange.code == done {
		t.Errorf("%s with nobody's certificate: got exit code %d, want a failure; it wrote %s%s", strange.line, done, strange.stdout, strange.stderr)
	}
}

// Whatever command asks a service can be told how to judge its certificate, and which to show.
func TestEveryCommandThatAsksAServiceTakesCertificates(t *testing.T) {
	found := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Flags().Lookup("server") != nil {
			found++
			for _, name := range []string{"ca", "cert", "key", "api-key"} {
				if c.Flags().Lookup(name) == nil {
					t.Errorf("%s has no --%s", c.CommandPath(), name)
				}
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look((&program{getenv: os.Getenv}).command())
	if found < 15 {
		t.Errorf("commands with --server: got %d, want 15 at least", found)
	}
}
