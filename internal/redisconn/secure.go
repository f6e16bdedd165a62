package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// tlsFiles are a URL's parameters that name files in PEM: the CAs that are trusted in place of the
// system's, and the certificate and key that the server asks its clients for.
var tlsFiles = []string{"tls_ca", "tls_cert", "tls_key"}

// takeFiles cuts those parameters out of a query.
func takeFiles(query url.Values) (files map[string]string) {
	files = map[string]string{}
	for _, name := range tlsFiles {
		if query.Has(name) {
			files[name] = query.Get(name)
			query.Del(name)
		}
	}
	return files
}

// Secure puts TLS and credentials, each nil by default, into the target. It reads the URL's files.
func (t *Target) Secure(secure *tls.Config, credentials func(context.Context) (username, password string, err error)) error {
	if t.Mode == Embedded {
		if secure != nil || credentials != nil {
			return errors.New("TLS and Credentials: the embedded store has no connections that leave the process")
		}
		return nil
	}
	t.Credentials = credentials
	own := t.tls()
	switch {
	case own == nil && secure != nil:
		return errors.New("TLS: the URL does not ask for it: rediss://, or tls=true for Sentinel and Cluster")
	case own == nil && len(t.files) > 0:
		return errors.New("redis URL: tls_ca, tls_cert and tls_key need TLS: rediss://, or tls=true for Sentinel and Cluster")
	case secure != nil && len(t.files) > 0:
		return errors.New("TLS: the URL names files as well: give one of both")
	case secure != nil:
		name := own.ServerName
		own = secure.Clone()
		own.ServerName = cmp.Or(own.ServerName, name)
	}
	if err := readFiles(own, t.files); err != nil {
		return err
	}
	t.Security = own
	if t.Server != nil {
		t.Server.TLSConfig, t.Server.CredentialsProviderContext = own, credentials
	}
	return nil
}

// readFiles puts the files of a URL's parameters into a configuration of TLS. The client's
// certificate is read again for each connection, so that a new one is taken without a restart.
func readFiles(into *tls.Config, files map[string]string) error {
	if name, given := files["tls_ca"]; given {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("redis URL: tls_ca: %w", err)
		}
		into.RootCAs = x509.NewCertPool()
		if !into.RootCAs.AppendCertsFromPEM(text) {
			return errors.New("redis URL: tls_ca: the file has no certificate in PEM")
		}
	}
	cert, hasCert := files["tls_cert"]
	key, hasKey := files["tls_key"]
	if !hasCert && !hasKey {
		return nil
	}
	if !hasCert || !hasKey {
		return errors.New("redis URL: tls_cert and tls_key belong together")
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("redis URL: tls_cert, tls_key: %w", err)
	}
	into.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return nil
}
