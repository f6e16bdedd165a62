package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// secured is a service that speaks TLS with settings and a clock that can change, and one client
// with a certificate, on connections that it keeps.
type secured struct {
	url      string
	ours     authority
	settings atomic.Pointer[tls.Config]
	late     atomic.Int64 // how far ahead the service's clock is
	client   *http.Client
}

func serveTLS(t *testing.T, book *access.Policy, protocol string, auth tls.ClientAuthType, show bool, hosts ...string) *secured {
	t.Helper()
	s := &secured{ours: newAuthority(t)}
	s.settings.Store(s.trusting(t, auth, s.ours))
	service := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: book, TLS: s.settings.Load, AllowedHosts: hosts, StopTimeout: patience})
	service.SetNow(func() time.Time { return time.Now().Add(time.Duration(s.late.Load())) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "net.Listen", err)
	s.url = "https://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- service.Serve(ctx, tls.NewListener(listener, &tls.Config{
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.settings.Load(), nil },
		}))
	}()
	config := &tls.Config{InsecureSkipVerify: true}
	if show {
		config.Certificates = []tls.Certificate{s.ours.sign(t, "orders.internal")}
	}
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
	s.client = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Errorf("stopping the service: %v", err)
		}
	})
	return s
}

// trusting are settings that take the certificates of some authorities.
func (s *secured) trusting(t *testing.T, auth tls.ClientAuthType, authorities ...authority) *tls.Config {
	t.Helper()
	config := &tls.Config{
		Certificates: []tls.Certificate{s.ours.sign(t, "localhost")}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: auth, SessionTicketsDisabled: true,
	}
	for _, one := range authorities {
		if config.ClientCAs == nil {
			config.ClientCAs = x509.NewCertPool()
		}
		config.ClientCAs.AddCert(one.cert)
	}
	return config
}

// get takes a value, and tells the status, whether the connection was one that was kept, and the
// answer.
func (s *secured) get(t *testing.T) (status int, kept bool, got answer) {
	t.Helper()
	const path = "/incr/k"
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { kept = info.Reused }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	expect.NoError(t, "http.NewRequestWithContext", err)
	response, err := s.client.Do(request)
	expect.NoError(t, "GET "+path, err)
	defer response.Body.Close()
	var text [2000]byte
	n, _ := response.Body.Read(text[:]) // it is short, and comes at once
	return response.StatusCode, kept, answer{"GET " + path, response.StatusCode, response.Header, text[:n]}
}

// What ends the right of a client certificate ends it on the connections that are there, too: at
// their next request, with a sentence, and the connection ends.
func TestClientCertificateIsLookedAtAgainAtEachRequest(t *testing.T) {
	t.Parallel()
	const yes, no = 200, 401
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, row := range []struct {
			name   string
			change func(t *testing.T, s *secured)
			want   int
			says   string
		}{
			{"nothing", func(*testing.T, *secured) {}, yes, ""},
			{"another certificate of the service", func(t *testing.T, s *secured) {
				s.settings.Store(s.trusting(t, tls.VerifyClientCertIfGiven, s.ours))
			}, yes, ""},
			{"one more authority", func(t *testing.T, s *secured) {
				s.settings.Store(s.trusting(t, tls.VerifyClientCertIfGiven, newAuthority(t), s.ours))
			}, yes, ""},
			{"another authority in its place", func(t *testing.T, s *secured) {
				s.settings.Store(s.trusting(t, tls.VerifyClientCertIfGiven, newAuthority(t)))
			}, no, "its authority is not trusted"},
			{"no authorities", func(t *testing.T, s *secured) { s.settings.Store(s.trusting(t, tls.NoClientCert)) }, no, "not taken any more"},
			{"half of the certificate's time", func(_ *testing.T, s *secured) { s.late.Store(int64(30 * time.Minute)) }, yes, ""},
			{"the end of the certificate", func(_ *testing.T, s *secured) { s.late.Store(int64(2 * time.Hour)) }, no, "it has ended"},
		} {
			t.Run(protocol+", "+row.name, func(t *testing.T) {
				book := openPolicy(t, filepath.Join(t.TempDir(), "keys.yaml"), "certificates:\n- {dns: orders.internal, principal: orders, role: use}\n")
				s := serveTLS(t, book, protocol, tls.VerifyClientCertIfGiven, true)
				for range 2 {
					status, _, _ := s.get(t)
					expect.MustEqual(t, "status before", status, yes)
				}
				row.change(t, s)
				for range 2 {
					status, kept, got := s.get(t)
					expect.Equal(t, "status afterwards", status, row.want)
					expect.Equal(t, "the connection was kept", kept, true)
					expect.Contains(t, "what the answer says", string(got.body), row.says)
					if row.want == no {
						got.wantHeader(t, "WWW-Authenticate", `Bearer realm="coatcheck"`)
						// the next request would come on a new connection, which begins without
						// this certificate or not at all
						break
					}
				}
				if row.want == no {
					s.ends(t)
				}
			})
		}
	}
}

// ends waits until the client has no connection left that it was kept on.
func (s *secured) ends(t *testing.T) {
	t.Helper()
	expect.Eventually(t, "the connection has ended", func() bool {
		kept := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { kept = info.Reused }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/livez", nil)
		expect.NoError(t, "http.NewRequestWithContext", err)
		response, err := s.client.Do(request)
		if err != nil {
			return strings.Contains(err.Error(), "certificate") || !kept // a new one is refused
		}
		response.Body.Close()
		return !kept
	})
}

// Where a certificate is all that is asked for, who has none is refused in the same way, once it is
// asked for, and whose certificate is over.
func TestConnectionsWithoutTheCertificateThatIsAskedForNow(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		bare := serveTLS(t, nil, protocol, tls.VerifyClientCertIfGiven, false)
		shown := serveTLS(t, nil, protocol, tls.RequireAndVerifyClientCert, true)
		for name, s := range map[string]*secured{"none": bare, "one": shown} {
			status, _, _ := s.get(t)
			expect.MustEqual(t, protocol+", certificate "+name+": status before", status, 200)
		}
		bare.settings.Store(bare.trusting(t, tls.RequireAndVerifyClientCert, bare.ours))
		shown.settings.Store(shown.trusting(t, tls.RequireAndVerifyClientCert, newAuthority(t)))
		for name, s := range map[string]*secured{"none": bare, "one": shown} {
			status, kept, _ := s.get(t)
			expect.Equal(t, protocol+", certificate "+name+": status afterwards", status, 401)
			expect.Equal(t, protocol+", certificate "+name+": the connection was kept", kept, true)
			s.ends(t)
		}
	}
}
