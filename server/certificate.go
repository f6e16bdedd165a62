package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
)

// A client certificate is verified when its connection begins. Each later request checks it again,
// by the clock and by the authorities that are trusted now.

// verified is the outcome of the last check of a connection's client certificate.
type verified struct {
	mu    sync.Mutex
	by    *tls.Config // the settings that it was verified by; nil = it was not looked at yet
	until time.Time   // when the first certificate of its chain ends; zero = there is none
	fault string      // "" = it is good
}

type verifiedKey struct{}

// withVerified gives each connection a place for that outcome, as [http.Server.ConnContext].
func withVerified(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, verifiedKey{}, &verified{})
}

// checkCertificate refuses a request on a connection whose client certificate would not be taken
// any more, and has the connection end.
func (a *admission) checkCertificate(c echo.Context) error {
	wrong := a.certificateFault(c.Request())
	if wrong == "" {
		return nil
	}
	// by HTTP/2, which has no such header, GOAWAY
	c.Response().Header().Set(echo.HeaderConnection, "close")
	challenge(c, "")
	return &fault{api.Unauthorized, "certificate", wrong}
}

// certificateFault returns what is wrong now with a connection's client certificate, or "".
func (a *admission) certificateFault(r *http.Request) string {
	if a.tls == nil || r.TLS == nil {
		return ""
	}
	found, ok := r.Context().Value(verifiedKey{}).(*verified)
	if !ok {
		found = &verified{}
	}
	return found.look(a.tls(), r.TLS, a.now())
}

// look returns the fault of a client certificate. It verifies it again only if the settings have
// changed, or a certificate of its chain has ended since.
func (v *verified) look(settings *tls.Config, state *tls.ConnectionState, now time.Time) (fault string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by != settings || !v.until.IsZero() && now.After(v.until) {
		v.by = settings
		v.until, v.fault = verify(settings, state, now)
	}
	return v.fault
}

// verify verifies a connection's client certificate as of its beginning, and until when it holds.
func verify(settings *tls.Config, state *tls.ConnectionState, now time.Time) (until time.Time, fault string) {
	if len(state.PeerCertificates) == 0 {
		if settings.ClientAuth == tls.RequireAndVerifyClientCert {
			return until, "a client certificate is asked for now, and this connection began without one: connect anew"
		}
		return until, ""
	}
	if settings.ClientCAs == nil {
		return until, "client certificates are not taken any more: connect anew without one"
	}
	options := x509.VerifyOptions{
		Roots: settings.ClientCAs, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, between := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(between)
	}
	chains, err := state.PeerCertificates[0].Verify(options)
	if err != nil {
		return until, "the client certificate of this connection is not good any more: it has ended, or its authority is not trusted: " +
			"connect anew with another"
	}
	for _, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
		if first.After(until) {
			until = first
		}
	}
	return until, ""
}
