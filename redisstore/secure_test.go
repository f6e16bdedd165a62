package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestServerThatAsksForACertificateGetsIt(t *testing.T) {
	t.Parallel()
	cert, key := redistest.KeyPair(t)
	port, err := proctest.Reserve()
	expect.NoError(t, "reserving a port", err)
	t.Cleanup(port.Release)
	redistest.Start(t, "--tls-port", strconv.Itoa(port.Number()), "--tls-auth-clients", "yes",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	address := "rediss://127.0.0.1:" + strconv.Itoa(port.Number())

	named := open(t, address+"?tls_ca="+cert+"&tls_cert="+cert+"&tls_key="+key, nil)
	mustBump(t, named, "x", 1)
	pair, err := tls.LoadX509KeyPair(cert, key)
	expect.NoError(t, "tls.LoadX509KeyPair", err)
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	given := open(t, address, func(c *redisstore.Config) {
		c.TLS = &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	})
	mustBump(t, given, "x", 2)
	for name, url := range map[string]string{"no certificate": address + "?tls_ca=" + cert, "a CA that is not trusted": address + "?tls_cert=" + cert + "&tls_key=" + key} {
		_, err := bumped(t.Context(), open(t, url, nil), "x")
		if !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrUnknownOutcome) {
			t.Errorf("%s: got error %v, want one of a connection that failed", name, err)
		}
	}
	expect.Equal(t, "calls that ran", counted(t, named, "x"), 2)
	found, err := redisprobe.Inspect(t.Context(), redisstore.Config{URL: address + "?tls_ca=" + cert + "&tls_cert=" + cert + "&tls_key=" + key}, redisprobe.Options{Samples: 1, Patience: time.Minute})
	expect.Error(t, "Inspect", err, nil)
	expect.Equal(t, "TLS, as Inspect found it", found.TLS, true)
}

// A provider's user and password are asked for with each connection, and its error is the call's.
func TestCredentialsAreAskedForWithEachConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "iam", "on", ">token-1", "~*", "&*", "+@all")
	var password atomic.Value
	password.Store("token-1")
	failure := errors.New("the cloud is away")
	store := open(t, server.URL(), func(c *redisstore.Config) {
		c.Credentials = func(context.Context) (string, string, error) {
			if password.Load() == "" {
				return "", "", failure
			}
			return "iam", password.Load().(string), nil
		}
	})
	mustBump(t, store, "x", 1)
	do(t, server, "ACL", "SETUSER", "iam", "resetpass", ">token-2")
	password.Store("token-2")
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call succeeds with the new password", func() bool { _, err := number(t.Context(), store, peek, "x"); return err == nil })
	password.Store("")
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call says that there are no credentials", func() bool {
		_, err := number(t.Context(), store, peek, "x")
		return strings.Contains(fmt.Sprint(err), failure.Error())
	})
}

func TestSecurityIsTakenOrRefused(t *testing.T) {
	cert, key := redistest.KeyPair(t)
	for _, row := range []struct{ name, url, says string }{
		{"all three", "rediss://ann:se%40cret@h/3?pool_size=7&tls_ca=" + cert + "&tls_cert=" + cert + "&tls_key=" + key, ""},
		{"of Sentinel", "redis+sentinel://h/main?tls=true&tls_ca=" + cert, ""},
		{"of Cluster", "redis+cluster://h?tls=true&tls_cert=" + cert + "&tls_key=" + key, ""},
		{"no TLS", "redis://h?tls_ca=" + cert, "rediss://"},
		{"no TLS of a cluster", "redis+cluster://h?tls_ca=" + cert, "tls=true"},
		{"no key", "rediss://h?tls_cert=" + cert, "belong together"},
		{"no certificate", "rediss://h?tls_key=" + key, "belong together"},
		{"a CA that is not there", "rediss://h?tls_ca=" + cert + ".not", "tls_ca"},
		{"a CA that is none", "rediss://h?tls_ca=" + key, "no certificate in PEM"},
		{"a key that is none", "rediss://h?tls_cert=" + cert + "&tls_key=" + cert, "tls_key"},
	} {
		err := redisstore.Config{URL: row.url}.Check()
		if row.says == "" != (err == nil) || !strings.Contains(fmt.Sprint(err), row.says) && err != nil {
			t.Errorf("%s: got error %v, want one that says %q", row.name, err, row.says)
		}
	}
	secure := &tls.Config{}
	for url, says := range map[string]string{
		"embedded:": "embedded store", "redis://h": "rediss://", "redis+cluster://h": "tls=true", "rediss://h?tls_ca=" + cert: "one of both",
	} {
		if err := (redisstore.Config{URL: url, TLS: secure}).Check(); !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("a configuration of TLS with %s: got error %v, want one that says %q", url, err, says)
		}
	}
}
