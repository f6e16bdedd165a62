package frontdoor_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What a frame of HTTP/2 is (RFC 9113, section 6), and its flags.
const (
	headersFrame, resetFrame, settingsFrame, goAwayFrame, continuationFrame = 1, 3, 4, 7, 9

	endStream, endHeaders = 1, 4
)

// openHTTP2 opens a house that speaks HTTP/2, as visits of the second value do.
func openHTTP2(t *testing.T, config frontdoor.Config, handler http.Handler) (*house, func(initialWindow uint32) *stranger) {
	t.Helper()
	example := httptest.NewUnstartedServer(nil)
	example.StartTLS() // for its certificate
	t.Cleanup(example.Close)
	h := &house{t: t}
	h.secure = &tls.Config{Certificates: example.TLS.Certificates, NextProtos: []string{"h2"}}
	h.serve(config, handler)
	client := example.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	client.ServerName, client.NextProtos = "example.com", []string{"h2"}
	return h, func(initialWindow uint32) *stranger {
		t.Helper()
		conn, err := tls.Dial("tcp", h.addr, client)
		expect.NoError(t, "connecting by HTTP/2", err)
		t.Cleanup(func() { _ = conn.Close() })
		expect.NoError(t, "conn.SetDeadline", conn.SetDeadline(time.Now().Add(patience)))
		s := &stranger{conn, t}
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		s.say(settingsFrame, 0, 0, string(binary.BigEndian.AppendUint32([]byte{0, 4}, initialWindow)))
		return s
	}
}

// stranger speaks HTTP/2 frame by frame.
type stranger struct {
	*tls.Conn
	t *testing.T
}

func (s *stranger) say(kind, flags byte, stream uint32, payload string) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	_, _ = s.Write(append(head, payload...)) // the server may have hung up
}

// get is the header of GET / in HPACK, and largeField one more field of it, of 200 bytes.
var (
	get        = "\x82\x84\x87\x01\x01x"
	largeField = "\x00\x01a\x7f\x46" + strings.Repeat("b", 197)
)

// hears reads up to the next frame of a kind; ok is false if the connection ended before.
func (s *stranger) hears(kind byte) (payload []byte, ok bool) {
	s.t.Helper()
	head := make([]byte, 9)
	for {
		if _, err := io.ReadFull(s, head); err != nil {
			return nil, false
		}
		payload = make([]byte, binary.BigEndian.Uint32(head)>>8)
		if _, err := io.ReadFull(s, payload); err != nil {
			return nil, false
		}
		if head[3] == kind {
			return payload, true
		}
	}
}

func (s *stranger) isAnswered(what string) {
	s.t.Helper()
	_, ok := s.hears(headersFrame)
	expect.Equal(s.t, what+" is answered", ok, true)
}

// A header may come in many frames, of which no handler hears before the last.
func TestHeadersInFlightAreBoundedByHTTP2(t *testing.T) {
	h, visit := openHTTP2(t, frontdoor.Config{MaxHeader: 50_000, MaxBytes: 150_000}, http.HandlerFunc(keeping))
	half := func() *stranger {
		s := visit(1 << 16)
		s.say(headersFrame, endStream|endHeaders, 1, get)
		s.isAnswered("the first request")
		s.say(headersFrame, endStream, 3, get)
		for range 20 {
			s.say(continuationFrame, 0, 3, strings.Repeat(largeField, 10)) // 40,000 bytes
		}
		return s
	}
	holder := half()
	expect.Eventually(t, "the header is in flight", func() bool { return h.door.BytesInFlight() > 80_000 })
	_, ok := half().hears(headersFrame)
	expect.Equal(t, "a client for whose header there is no memory is answered", ok, false)
	holder.say(continuationFrame, endHeaders, 3, largeField)
	holder.isAnswered("the header that was there before")
	h.holds(0)
}

// By HTTP/2 one byte names a whole field, also in the first header of a connection, whose bytes may
// have come together with the end of the TLS handshake.
func TestFieldsThatOneByteNamesAreCounted(t *testing.T) {
	h, visit := openHTTP2(t, frontdoor.Config{MaxBytes: 1 << 20}, http.HandlerFunc(keeping))
	s := visit(1 << 16)
	s.say(headersFrame, 0, 1, strings.Repeat("\x90", 1000)) // accept-encoding, without an end
	expect.Eventually(t, "1,000 fields of 40 bytes are in flight", func() bool { return h.door.BytesInFlight() >= 40_000 })
	_ = s.Close()
	h.holds(0)
}

// net/http has memory for a whole frame as soon as its length has come.
func TestFramesOfHTTP2AreSmall(t *testing.T) {
	_, visit := openHTTP2(t, frontdoor.Config{}, http.HandlerFunc(keeping))
	s := visit(1 << 16)
	text, _ := s.hears(settingsFrame)
	settings := map[uint16]uint32{}
	for ; len(text) >= 6; text = text[6:] {
		settings[binary.BigEndian.Uint16(text)] = binary.BigEndian.Uint32(text[2:])
	}
	expect.Equal(t, "the largest frame (5)", settings[5], uint32(16<<10))
	expect.Equal(t, "what may come of a body before a handler reads it (4)", settings[4], uint32(256<<10))
	s.say(headersFrame, endStream|endHeaders, 1, strings.Repeat("a", 16<<10+1))
	_, ok := s.hears(goAwayFrame)
	expect.Equal(t, "a frame of 16 KiB and a byte ends the connection", ok, true)
	_, _ = io.Copy(io.Discard, s) // net/http keeps it for a second more
}

// net/http sends a small answer after its handler has returned, as soon as the client takes it.
func TestAnswersThatAreNotTakenAreBoundedByHTTP2(t *testing.T) {
	const nine = 9 * 16 << 10
	h, visit := openHTTP2(t, frontdoor.Config{MaxBytes: nine + nine/18}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	holder := visit(0)
	for i := range uint32(9) {
		holder.say(headersFrame, endStream|endHeaders, 1+2*i, get)
	}
	expect.Eventually(t, "nine answers wait for their client", func() bool { return h.door.Unsent() == 9 })
	other := visit(1 << 16)
	other.say(headersFrame, endStream|endHeaders, 1, get) // for which there is no memory
	_, ok := holder.hears(resetFrame)
	expect.Equal(t, "who takes nothing of its answers loses one", ok, true)
	h.holds(0)
	other.say(headersFrame, endStream|endHeaders, 3, get)
	other.isAnswered("a request after that")
}
