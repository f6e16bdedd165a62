package config

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/watch"
)

// The modes of client certificates.
const (
	requestCertificate = "request" // a certificate may be shown; a wrong one is refused
	RequireCertificate = "require"
)

// TLSFiles are the files of the service's certificate, and of the authorities of its clients.
type TLSFiles struct{ cert, key, clientCA, clientAuth string }

// TLSFiles returns the files that the settings name.
func (c *Service) TLSFiles() TLSFiles {
	return TLSFiles{c.TLSCert, c.TLSKey, c.TLSClientCA, c.TLSClientAuth}
}

// suites are those of TLS 1.2 that are offered: with forward secrecy, and authenticated encryption
// in place of CBC with SHA-1. Those of TLS 1.3 are all of that kind, and not for choosing.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Load reads the files. The version is that of their content.
func (f TLSFiles) Load() (loaded *tls.Config, version string, err error) {
	cert, certErr := os.ReadFile(f.cert)
	key, keyErr := os.ReadFile(f.key)
	var authorities []byte
	var caErr error
	if f.clientCA != "" {
		authorities, caErr = os.ReadFile(f.clientCA)
	}
	if err := errors.Join(inSetting("tls-cert", certErr), inSetting("tls-key", keyErr), inSetting("tls-client-ca", caErr)); err != nil {
		return nil, version, err
	}
	version = watch.Version(bytes.Join([][]byte{cert, key, authorities}, []byte{0}))
	loaded = &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites, NextProtos: []string{"h2", "http/1.1"}}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, version, fmt.Errorf("tls-cert and tls-key: %w", err)
	}
	loaded.Certificates = []tls.Certificate{pair}
	if f.clientCA == "" {
		return loaded, version, nil
	}
	loaded.ClientCAs = x509.NewCertPool()
	if !loaded.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, version, errors.New("tls-client-ca: no certificate in PEM in it")
	}
	loaded.ClientAuth = tls.VerifyClientCertIfGiven
	if f.clientAuth == RequireCertificate {
		loaded.ClientAuth = tls.RequireAndVerifyClientCert
	}
	// a session that is taken up again would outlast an authority that was taken out
	loaded.SessionTicketsDisabled = true
	return loaded, version, nil
}

func inSetting(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// Certificates are the service's TLS settings, which follow their files. nil is no TLS.
type Certificates struct {
	log  *slog.Logger
	now  atomic.Pointer[tls.Config]
	stop func()

	mu    sync.Mutex // of what follows
	files TLSFiles
	seen  watch.Seen
}

// certificateEvery is how often the files are looked at.
const certificateEvery = 5 * time.Second

// OpenTLS reads the files and follows them until Close; nil if TLS is not set.
func (c *Service) OpenTLS(log *slog.Logger) (*Certificates, error) {
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // no certificates are no TLS
	}
	t := &Certificates{files: c.TLSFiles(), log: log}
	if err := t.Change(t.files); err != nil {
		return nil, err
	}
	if watch.IsExposed(c.TLSKey) {
		log.Warn("every user of this machine can read the key of the certificate: chmod o-r", "file", c.TLSKey)
	}
	t.stop = watch.Every(certificateEvery, t.look)
	return t, nil
}

// Close ends the following.
func (t *Certificates) Close() {
	if t != nil {
		t.stop()
	}
}

// Reload reads the files at once. If they are wrong, the settings in force stay.
func (t *Certificates) Reload(context.Context) error {
	t.mu.Lock()
	files := t.files
	t.mu.Unlock()
	return t.Change(files)
}

// Change reads other files. If they are wrong, the settings in force stay.
func (t *Certificates) Change(files TLSFiles) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	loaded, version, err := files.Load()
	if err != nil {
		return err
	}
	t.files = files
	t.seen.Take(version, nil)
	t.use(loaded)
	return nil
}

func (t *Certificates) use(loaded *tls.Config) {
	t.now.Store(loaded)
	leaf := loaded.Certificates[0].Leaf
	t.log.Info("a certificate is in force", "subject", leaf.Subject.String(), "not_after", leaf.NotAfter)
	if time.Now().After(leaf.NotAfter) {
		t.log.Warn("the certificate's time is over: clients will not take it", "not_after", leaf.NotAfter)
	}
}

// look takes files that are new.
func (t *Certificates) look(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	loaded, version, err := t.files.Load()
	switch {
	case !t.seen.Look(version, err):
	case err == nil:
		t.use(loaded)
	default:
		t.log.Error("the new certificate has a fault; the one before it stays in force", "error", err)
	}
}

// Around makes a listener speak TLS. A connection keeps the settings with which it began, but the
// service checks its client certificate again.
func (t *Certificates) Around(listener net.Listener) net.Listener {
	if t == nil {
		return listener
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.now.Load(), nil },
	})
}

// Settings are those in force; nil, which has none to give, without TLS.
func (t *Certificates) Settings() func() *tls.Config {
	if t == nil {
		return nil
	}
	return t.now.Load
}

// Trusting is a client's TLS settings: the system's authorities, or those of a file.
func Trusting(ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("server-ca: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("server-ca: no certificate in PEM in it")
	}
	return config, nil
}

// Showing is the certificate that a client shows. The error names the faulty file.
func Showing(cert, key string) (tls.Certificate, error) {
	shown, certErr := os.ReadFile(cert)
	secret, keyErr := os.ReadFile(key)
	if err := errors.Join(inSetting("client-cert", certErr), inSetting("client-key", keyErr)); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(shown, secret)
	if err != nil {
		return pair, fmt.Errorf("client-cert and client-key: %w", err)
	}
	return pair, nil
}

// Itself is the TLS settings of a client on the service's own machine: the peer has to have the
// file's certificate, under any name.
func (f TLSFiles) Itself() (*tls.Config, error) {
	own, _, err := f.Load()
	if err != nil {
		return nil, err
	}
	want := own.Certificates[0].Certificate[0]
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: own.Certificates,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection is stricter: it takes one certificate alone
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, want) {
				return errors.New("the service shows another certificate than that of --tls-cert")
			}
			return nil
		},
	}, nil
}
