package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Guarded requests never go over HTTP/2, where net/http sends some again by itself: if a service
// has both, what breaks off after the effect is an unknown outcome, and repeats have no effect.
func TestGuardedRequestsNeverUseHTTP2(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE", "GET"} {
		for _, body := range []string{"", "x"} {
			t.Run(fmt.Sprint(method, " ", body), func(t *testing.T) {
				t.Parallel()
				u := startFaultyH2(t, func(conn net.Conn, stream uint32) bool {
					return frame(conn, resetFrame, 0, stream, four(refusedStream))
				})
				r := start(t, u.url, "routes: [{match: /payments}, {match: /, guard: false}]", func(c *Config) { c.TLS = u.client })
				r.wantStatus(r.do(method, "/payments", body, "Idempotency-Key: a"), 200)
				r.wantCode(r.do(method, "/payments", body, "Idempotency-Key: b"), api.OutcomeUnknown)
				for range 3 {
					r.wantCode(r.do(method, "/payments", body, "Idempotency-Key: b"), api.IdempotencyUnknown)
					r.wantStatus(r.do(method, "/payments", body, "Idempotency-Key: a"), 200)
				}
				expect.Equal(t, "effects of two keys", u.effects.Load(), 2)
				expect.Equal(t, "requests over HTTP/2", u.over2.Load(), 0)
			})
		}
	}
}

// A service that has HTTP/2 alone is out of reach for what goes over HTTP/1.1: nothing was sent, so
// that keys stay free.
func TestServiceOfHTTP2AloneIsOutOfReachAndLosesNoKey(t *testing.T) {
	var paid atomic.Int64
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		paid.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	service.EnableHTTP2 = true
	// RFC 7301, section 3.2, which Go leaves out for http/1.1
	service.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if offered := hello.SupportedProtos; len(offered) > 0 && !slices.Contains(offered, "h2") {
			return nil, errors.New("no protocol that both have")
		}
		return nil, nil //nolint:nilnil // as it is
	}, NextProtos: []string{"h2"}}
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetHTTP2(true)
	service.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	service.StartTLS()
	t.Cleanup(service.Close)
	r := start(t, service.URL, payments, func(c *Config) {
		c.TLS = service.Client().Transport.(*http.Transport).TLSClientConfig
	})
	for range 2 {
		r.wantCode(r.pay("k"), api.UpstreamUnavailable)
	}
	r.wantCode(r.do("POST", "/free", ""), api.UpstreamUnavailable)
	r.wantStatus(r.do("POST", "/free", "x"), 201)
	r.wantStatus(r.do("GET", "/free", ""), 201)
	expect.Equal(t, "requests that came", paid.Load(), 2)
}
