package cli

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A service that takes no client without a certificate is asked by commands that show one, by flags
// or by the environment.
func TestCommandsShowAClientCertificate(t *testing.T) {
	at, mine := certify(t, "localhost"), certify(t, "orders.internal")
	access := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(access, []byte("certificates:\n- {dns: orders.internal, principal: orders, role: admin}\n"), 0o600); err != nil {
		t.Fatalf("write the file: %v", err)
	}
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key, "--tls-client-ca", mine.cert, "--tls-client-auth", "require", "--access", access)
	where := []string{"--server", p.banner.URL, "--server-ca", at.cert}
	shown := append(slices.Clone(where), "--client-cert", mine.cert, "--client-key", mine.key)
	with := func(flags []string, command ...string) []string { return append(slices.Clone(command), flags...) }

	expect.Equal(t, "incr k with a certificate", execute(t, nil, with(shown, "incr", "k")...).exits(done).stdout, "1\n")
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL, "COATCHECK_SERVER_CA": at.cert, "COATCHECK_CLIENT_CERT": mine.cert, "COATCHECK_CLIENT_KEY": mine.key}
	expect.Equal(t, "counter get k, the certificate in the environment", execute(t, env, "counter", "get", "k").exits(done).stdout, "1\n")
	for _, command := range [][]string{
		{"token", "issue"}, {"worker", "ls"}, {"lock", "ls"}, {"id", "segment", "orders"},
		{"doctor", "--fail-on", "never"},
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
		{mine.cert, "", "client-cert and client-key: one without the other"},
		{"", mine.key, "client-cert and client-key: one without the other"},
		{none, mine.key, "cert: open " + none},
		{mine.cert, none, "key: open " + none},
		{mine.cert, other.key, "private key does not match"},
		{mine.key, mine.key, "client-cert and client-key: "},
	} {
		for _, command := range [][]string{{"incr", "k"}, {"doctor"}} {
			execute(t, nil, append(with(where, command...), "--client-cert="+row.cert, "--client-key="+row.key)...).exits(usage, row.fault)
		}
	}
	faulty := execute(t, nil, "incr", "k", "--server", p.banner.URL, "--server-ca", none, "--client-cert", none, "--client-key", none).exits(usage)
	expect.Equal(t, "files that are not there, told at once", strings.Count(faulty.stderr, "open "+none), 3)
	if strange := execute(t, nil, with(where, "incr", "k", "--client-cert", other.cert, "--client-key", other.key)...); strange.code == done {
		t.Errorf("%s with an unknown certificate: got exit code %d, want a failure; it wrote %s%s", strange.line, done, strange.stdout, strange.stderr)
	}
}

// An authority that is taken out of the file on SIGHUP ends the right of its certificates on the
// connections that are there, too.
func TestCertificateOfAnAuthorityThatWasTakenOutIsRefusedOnItsConnection(t *testing.T) {
	t.Parallel()
	at, mine, other := certify(t, "localhost"), certify(t, "orders.internal"), certify(t, "orders.internal")
	access := file(t, "certificates:\n- {dns: orders.internal, principal: orders, role: admin}\n")
	p := serveProcess(t, "--tls-cert", at.cert, "--tls-key", at.key, "--tls-client-ca", mine.cert, "--access", access)
	shown, err := tls.LoadX509KeyPair(mine.cert, mine.key)
	expect.NoError(t, "load the certificate", err)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.banner.URL, "https://"), &tls.Config{RootCAs: at.pool(t), ServerName: "localhost", Certificates: []tls.Certificate{shown}})
	expect.NoError(t, "connect by TLS", err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	incr := func() (status int, text string) {
		if _, err := io.WriteString(conn, "GET /incr/k HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatalf("send the request: %v", err)
		}
		response, err := http.ReadResponse(answers, nil)
		expect.NoError(t, "read the answer", err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		expect.Error(t, "reading the answer", err, nil)
		return response.StatusCode, string(body)
	}
	status, _ := incr()
	expect.MustEqual(t, "status before", status, 200)
	authorities, err := os.ReadFile(other.cert)
	expect.NoError(t, "read the page", err)
	overwrite(t, mine.cert, string(authorities))
	hangup(t, p)
	expect.Eventually(t, "the authorities were read again", func() bool { return p.logged(`"what":"certificates"`)+p.logged("what=certificates") > 0 })
	status, text := incr()
	expect.Equal(t, "status afterwards", status, 401)
	expect.Contains(t, "what the answer says", text, "its authority is not trusted")
	_, err = answers.ReadByte()
	expect.Equal(t, "how the connection ends", err, io.EOF)
}

// Whatever command asks a service can be told how to judge its certificate, and which to show.
func TestEveryCommandThatAsksAServiceTakesCertificates(t *testing.T) {
	found := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Flags().Lookup("server") != nil {
			found++
			for _, name := range []string{"server-ca", "client-cert", "client-key", "api-key"} {
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
