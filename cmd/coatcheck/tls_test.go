package main

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
	"syscall"
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: der}, p.key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (p pair) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(p.cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// subject is whose certificate a new connection is shown.
func subject(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// ask sends a request on a connection and reads the answer's status.
func ask(t *testing.T, conn net.Conn, answers *bufio.Reader) int {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body [100]byte
	_, _ = response.Body.Read(body[:]) // short, and there at once
	return response.StatusCode
}

// A new certificate is shown to those who come, and a connection that is there goes on. A pair with a fault changes nothing.
func TestCertificateIsReadAgainWithoutDroppingConnections(t *testing.T) {
	at := certify(t, "one")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	address, ok := strings.CutPrefix(p.banner.URL, "https://")
	if !ok {
		t.Fatalf("the banner says %s", p.banner.URL)
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: at.pool(t), ServerName: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	if status := ask(t, conn, answers); status != 200 {
		t.Fatalf("%d", status)
	}
	hangup := func() {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	at.write(t, "two")
	hangup()
	eventually(t, "the new certificate is shown", func() bool { return subject(t, address) == "two" })
	if status := ask(t, conn, answers); status != 200 {
		t.Errorf("the old connection: %d", status)
	}
	other := certify(t, "three")
	text, err := os.ReadFile(other.cert)
	if err != nil || os.WriteFile(at.cert, text, 0o600) != nil { // of another key
		t.Fatal(err)
	}
	hangup()
	eventually(t, "the fault is told", func() bool { return strings.Contains(p.stderr.String(), "private key does not match") })
	if name := subject(t, address); name != "two" {
		t.Errorf("%s is shown", name)
	}
	at.write(t, "four")
	eventually(t, "it is found without being told", func() bool { return subject(t, address) == "four" })
	if status := ask(t, conn, answers); status != 200 {
		t.Errorf("the old connection: %d", status)
	}
}

func TestTLSOfNowAndHTTP2(t *testing.T) {
	at := certify(t, "localhost")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: at.pool(t)}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Get(p.banner.URL + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
		t.Errorf("%s by %s", response.Status, response.Proto)
	}
	old := &tls.Config{RootCAs: at.pool(t), MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(p.banner.URL, "https://"), old); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is taken")
	}
	if response, err := http.Get("http://" + strings.TrimPrefix(p.banner.URL, "https://") + "/livez"); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", response.Status)
		}
	}
}

// Commands ask by https with the authority that --ca names, and the health check takes the certificate of the file alone.
func TestCommandsAndHealthCheckOverTLS(t *testing.T) {
	at, other := certify(t, "localhost"), certify(t, "localhost")
	p := serve(t, "--tls-cert", at.cert, "--tls-key", at.key)
	listen := strings.TrimPrefix(p.banner.URL, "https://")
	if code, stdout, stderr := coatcheck(t, nil, "incr", "k", "--server", p.banner.URL, "--ca", at.cert); code != done || stdout != "1\n" {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if code, _, stderr := coatcheck(t, nil, "incr", "k", "--server", p.banner.URL); code == done || !strings.Contains(stderr, "certificate") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, _ := coatcheck(t, nil, "incr", "k", "--server", p.banner.URL, "--ca", at.key); code != usage {
		t.Errorf("a file without authorities: %d", code)
	}
	for cert, want := range map[pair]int{at: done, other: failed} {
		if code, _, stderr := coatcheck(t, nil, "healthcheck", "--listen", listen, "--tls-cert", cert.cert, "--tls-key", cert.key); code != want {
			t.Errorf("%d, want %d: %s", code, want, stderr)
		}
	}
}

// Who shows a certificate of an authority that is taken is its principal; others may be let in without one, or not at all.
func TestClientCertificates(t *testing.T) {
	at, client, stranger := certify(t, "localhost"), certify(t, "orders.internal"), certify(t, "orders.internal")
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("certificates:\n- {dns: orders.internal, principal: orders, role: use}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--tls-cert", at.cert, "--tls-key", at.key, "--tls-client-ca", client.cert, "--access", file}
	for _, mode := range []string{"request", "require"} {
		p := serve(t, append(args, "--tls-client-auth", mode)...)
		get := func(show *pair) int {
			config := &tls.Config{RootCAs: at.pool(t)}
			if show != nil {
				loaded, err := tls.LoadX509KeyPair(show.cert, show.key)
				if err != nil {
					t.Fatal(err)
				}
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &loaded, nil } // asked for or not
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
		if status := get(&client); status != 200 {
			t.Errorf("%s: the known one: %d", mode, status)
		}
		if status := get(&stranger); status != 0 {
			t.Errorf("%s: one of another authority: %d", mode, status)
		}
		want := map[string]int{"request": 401, "require": 0}[mode]
		if status := get(nil); status != want {
			t.Errorf("%s: none: %d, want %d", mode, status, want)
		}
	}
}
