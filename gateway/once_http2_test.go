package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What of HTTP/2 these tests need (RFC 9113): frames have a type, flags and a stream.
const (
	dataFrame, headersFrame, resetFrame, settingsFrame, goAwayFrame = 0, 1, 3, 4, 7
	endStream, ack, endHeaders                                      = 1, 1, 4
	protocolError, refusedStream                                    = 1, 7
)

// faultyH2 is an https upstream that breaks off the second request of its life, once it has had its
// effect.
type faultyH2 struct {
	url     string
	client  *tls.Config // of one that trusts it
	effects atomic.Int64
	over2   atomic.Int64 // of these, those that came over HTTP/2
}

// startFaultyH2 starts one; fault breaks off a request of HTTP/2, and the connection is closed
// where it returns false. A request of HTTP/1.1 is broken off by the connection's end.
func startFaultyH2(t *testing.T, fault func(conn net.Conn, stream uint32) bool) *faultyH2 {
	t.Helper()
	like := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer like.Close()
	u := &faultyH2{client: like.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
	config := &tls.Config{Certificates: like.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	u.url = "https" + hear(t, func(plain net.Conn) {
		conn := tls.Server(plain, config)
		defer conn.Close()
		if conn.HandshakeContext(t.Context()) != nil {
			return
		}
		if conn.ConnectionState().NegotiatedProtocol == "h2" {
			u.serve2(conn, fault)
			return
		}
		(&dialogue{}).serve(conn, func(int64, *http.Request, net.Conn) bool {
			return u.effects.Add(1) != 2 && say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
	})[len("http"):]
	return u
}

// serve2 answers requests of HTTP/2.
func (u *faultyH2) serve2(conn net.Conn, fault func(net.Conn, uint32) bool) {
	reader := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, reader, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil || !frame(conn, settingsFrame, 0, 0, "") {
		return
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(reader, head); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		if _, err := io.CopyN(io.Discard, reader, int64(binary.BigEndian.Uint32(head[:4])>>8)); err != nil {
			return
		}
		switch {
		case kind == settingsFrame && flags&ack == 0:
			frame(conn, settingsFrame, ack, 0, "")
		case (kind == headersFrame || kind == dataFrame) && flags&endStream != 0:
			// the request is whole
			u.over2.Add(1)
			if u.effects.Add(1) == 2 {
				if !fault(conn, stream) {
					return
				}
				continue
			}
			// :status 200 (RFC 7541, appendix A)
			frame(conn, headersFrame, endStream|endHeaders, stream, "\x88")
		}
	}
}

// frame sends a frame of HTTP/2.
func frame(conn net.Conn, kind, flags byte, stream uint32, text string) bool {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(text))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	return say(conn, string(head)+text)
}

// four is a number of a frame, in four bytes.
func four(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// net/http sends a request of HTTP/2 again that has no body, whatever its method, after
// REFUSED_STREAM and GOAWAY, which say that nothing was done, and after PROTOCOL_ERROR, which does
// not. No request that is not safe is sent twice on an upstream's word alone.
func TestUnguardedRequestThatIsNotSafeIsNotSentAgainOverHTTP2(t *testing.T) {
	for name, fault := range map[string]func(conn net.Conn, stream uint32) bool{
		"REFUSED_STREAM": func(conn net.Conn, stream uint32) bool {
			return frame(conn, resetFrame, 0, stream, four(refusedStream))
		},
		"PROTOCOL_ERROR": func(conn net.Conn, stream uint32) bool {
			return frame(conn, resetFrame, 0, stream, four(protocolError))
		},
		"GOAWAY":               func(conn net.Conn, _ uint32) bool { frame(conn, goAwayFrame, 0, 0, four(0)+four(0)); return false },
		"GOAWAY and no end":    func(conn net.Conn, _ uint32) bool { return frame(conn, goAwayFrame, 0, 0, four(0)+four(0)) },
		"the connection's end": func(net.Conn, uint32) bool { return false },
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "PROPFIND"} {
			for _, body := range []string{"", "x"} {
				for _, headers := range [][]string{nil, {"Idempotency-Key: k"}, {"X-Idempotency-Key: k"}} {
					t.Run(fmt.Sprint(name, " ", method, " ", body, " ", headers), func(t *testing.T) {
						t.Parallel()
						u := startFaultyH2(t, fault)
						r := start(t, u.url, payments, func(c *Config) { c.TLS = u.client })
						r.wantStatus(r.do(method, "/x", body, headers...), 200)
						r.wantCode(r.do(method, "/x", body, headers...), api.OutcomeUnknown)
						expect.Equal(t, "effects of two requests", u.effects.Load(), 2)
					})
				}
			}
		}
	}
}

// What is safe is sent again, and what has a body goes over HTTP/2, as gRPC needs it.
func TestOpenRequestsUseHTTP2(t *testing.T) {
	u := startFaultyH2(t, func(conn net.Conn, stream uint32) bool {
		return frame(conn, resetFrame, 0, stream, four(refusedStream))
	})
	r := start(t, u.url, payments, func(c *Config) { c.TLS = u.client })
	for range 2 {
		r.wantStatus(r.do("GET", "/x", ""), 200)
	}
	expect.Equal(t, "requests of two that were safe", u.over2.Load(), 3)
	r.wantStatus(r.do("POST", "/x", "x"), 200)
	expect.Equal(t, "requests over HTTP/2 after one with a body", u.over2.Load(), 4)
}
