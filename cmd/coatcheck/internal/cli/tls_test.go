package cli

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// pair is a certificate that is its own authority, and its key, in files.
type pair struct{ cert, key string }

// certify makes a pair that is good for a name and for this machine.
func certify(t *testing.T, name string) pair {
	t.Helper()
	at := pair{filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")}
	at.write(t, name)
	return at
}

func (p pair) write(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, "make a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, "make a certificate", err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, "write the key", err)
	for file, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: der}, p.key: {Type: "PRIVATE KEY", Bytes: secret}} {
		expect.NoError(t, "write the file", os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
}

func (p pair) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(p.cert)
	expect.NoError(t, "read the page", err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// subject is whose certificate a new connection is shown.
func subject(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	expect.NoError(t, "connect by TLS", err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// ask sends a request on a connection and reads the answer's status.
func ask(t *testing.T, conn net.Conn, answers *bufio.Reader) int {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatalf("send the request: %v", err)
	}
	response, err := http.ReadResponse(answers, nil)
	expect.NoError(t, "read the answer", err)
	defer response.Body.Close()
	var body [100]byte
	_, _ = response.Body.Read(body[:]) // short, and there at once
	return response.StatusCode
}

// A new certificate is shown to those who come, and a connection that is there goes on. A pair with
// a fault changes nothing.
func TestCertificateIsReadAgainWithoutDroppingConnections(t *testing.T) {
	t.Parallel()
	at := certify(t, "one")
	p := serveProcess(t, "--tls-cert", at.cert, "--tls-key", at.key)
	address, ok := strings.CutPrefix(p.banner.URL, "https://")
	if !ok {
		t.Fatalf("the banner says %s", p.banner.URL)
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: at.pool(t), ServerName: "one"})
	expect.NoError(t, "connect by TLS", err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	expect.MustEqual(t, "status on a new connection", ask(t, conn, answers), 200)
	at.write(t, "two")
	hangup(t, p)
	expect.Eventually(t, "the new certificate is shown", func() bool { return subject(t, address) == "two" })
	expect.Equal(t, "status on the old connection after a new certificate", ask(t, conn, answers), 200)
	other := certify(t, "three")
	text, err := os.ReadFile(other.cert)
	expect.NoError(t, "read the page", err)
	overwrite(t, at.cert, string(text)) // of another key
	hangup(t, p)
	expect.Eventually(t, "the fault is told", func() bool { return strings.Contains(p.stderr.String(), "private key does not match") })
	expect.Equal(t, "the certificate after a pair with a fault", subject(t, address), "two")
	at.write(t, "four")
	eventually(t, "it is found without being told", func() bool { return subject(t, address) == "four" })
	expect.Equal(t, "status on the old connection after a new certificate", ask(t, conn, answers), 200)
}

func TestTLSOfNowAndHTTP2(t *testing.T) {
	at := certify(t, "localhost")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: at.pool(t)}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Get(p.banner.URL + "/livez")
	expect.NoError(t, "ask the service", err)
	response.Body.Close()
	expect.Equal(t, "status of GET /livez", response.StatusCode, http.StatusOK)
	expect.Equal(t, "protocol of GET /livez", response.Proto, "HTTP/2.0")
	old := &tls.Config{RootCAs: at.pool(t), MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(p.banner.URL, "https://"), old); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is taken")
	}
	if response, err := http.Get("http://" + strings.TrimPrefix(p.banner.URL, "https://") + "/livez"); err == nil {
		response.Body.Close()
		expect.Equal(t, "status of GET /livez without TLS", response.StatusCode, http.StatusBadRequest)
	}
}

// A client that offers nothing but CBC with SHA-1, or RSA without forward secrecy, is not spoken
// to.
func TestOldSuitesAreNotSpoken(t *testing.T) {
	at := certify(t, "localhost")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	hello := func(suites ...uint16) error {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(p.banner.URL, "https://"), &tls.Config{
			RootCAs: at.pool(t), ServerName: "localhost", MaxVersion: tls.VersionTLS12, CipherSuites: suites,
		})
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, suite := range []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA,
	} {
		if err := hello(suite); err == nil || !strings.Contains(err.Error(), "handshake failure") {
			t.Errorf("a client that offers %s alone: got %v, want a handshake failure", tls.CipherSuiteName(suite), err)
		}
	}
	for _, suite := range []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256} {
		expect.Error(t, "a client that offers "+tls.CipherSuiteName(suite)+" alone", hello(suite), nil)
	}
}

// Commands ask by https with the authority that --server-ca names, and the health check takes the
// certificate of the file alone.
func TestCommandsAndHealthCheckOverTLS(t *testing.T) {
	at, other := certify(t, "localhost"), certify(t, "localhost")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	listen := strings.TrimPrefix(p.banner.URL, "https://")
	counted := execute(t, nil, "incr", "k", "--server", p.banner.URL, "--server-ca", at.cert).exits(done)
	expect.Equal(t, counted.line, counted.stdout, "1\n")
	strange := execute(t, nil, "incr", "k", "--server", p.banner.URL)
	if strange.code == done {
		t.Errorf("%s: got exit code %d, want a failure", strange.line, strange.code)
	}
	expect.Contains(t, "stderr of "+strange.line, strange.stderr, "certificate")
	// a file without authorities
	execute(t, nil, "incr", "k", "--server", p.banner.URL, "--server-ca", at.key).exits(usage)
	for cert, want := range map[pair]int{at: done, other: failed} {
		execute(t, nil, "healthcheck", "--listen", listen, "--tls-cert", cert.cert, "--tls-key", cert.key).exits(want)
	}
}

// Who shows a certificate of an authority that is taken is its principal; others may be let in
// without one, or not at all.
func TestClientCertificates(t *testing.T) {
	at, client, stranger := certify(t, "localhost"), certify(t, "orders.internal"), certify(t, "orders.internal")
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("certificates:\n- {dns: orders.internal, principal: orders, role: use}\n"), 0o600); err != nil {
		t.Fatalf("write the file: %v", err)
	}
	args := []string{"--tls-cert", at.cert, "--tls-key", at.key, "--tls-client-ca", client.cert, "--access", file}
	for _, mode := range []string{"request", "require"} {
		p := serve(t, append(args, "--tls-client-auth", mode)...)
		get := func(show *pair) int {
			config := &tls.Config{RootCAs: at.pool(t)}
			if show != nil {
				loaded, err := tls.LoadX509KeyPair(show.cert, show.key)
				expect.NoError(t, "load the certificate", err)
				// asked for or not
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &loaded, nil }
			}
			web := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			defer web.CloseIdleConnections()
			response, err := web.Get(p.banner.URL + "/incr/k")
			if err != nil {
				return 0
			}
			response.Body.Close()
			return response.StatusCode
		}
		const none = 0 // there is no answer
		expect.Equal(t, mode+": status with the known certificate", get(&client), 200)
		expect.Equal(t, mode+": status with one of another authority", get(&stranger), none)
		expect.Equal(t, mode+": status without a certificate", get(nil), map[string]int{"request": 401, "require": none}[mode])
	}
}
