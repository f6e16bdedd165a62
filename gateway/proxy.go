package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

func (g *Gateway) proxy(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      anew{transport},
		Rewrite:        g.rewrite,
		ModifyResponse: g.inspect,
		ErrorHandler:   g.noAnswer,
		FlushInterval:  -1,
		BufferPool:     &buffers,
		// noAnswer and recovered log failures without quoting the request or the answer
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
}

// buffers are for copying answers. Without them each request would allocate 32 KiB.
var buffers bufferPool

// bufferPool is a [httputil.BufferPool].
type bufferPool struct{ free sync.Pool }

const bufferSize = 32 << 10 // as ReverseProxy takes

func (p *bufferPool) Get() []byte {
	if buffer, ok := p.free.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(buffer []byte) { p.free.Put((*[bufferSize]byte)(buffer)) }

func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	x := exchangeOf(p.In.Context())
	p.SetURL(g.config.Upstream.url)
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came: nothing here reads it
	if g.config.PreserveHost {
		p.Out.Host = p.In.Host
	}
	g.dropMisleading(p.Out.Header)
	dropAdded(p.Out.Header)
	g.forwarded(p)
	p.Out.Header.Set(requestIDHeader, x.id)
	if isH2C(p.Out.Header) {
		dropUpgrade(p.Out.Header)
	}
	if attempt, isGuarded := idempotency.FromContext(p.In.Context()); isGuarded {
		p.Out.Header.Set(idempotency.FenceHeader, strconv.FormatInt(attempt.Fence, 10))
		p.Out.Header.Set(idempotency.OperationHeader, attempt.Operation)
		once(p)
	} else {
		g.passTrailers(p)
		if !muxpattern.IsSafe(p.Out.Method) {
			hideKeys(p)
		}
	}
	p.Out = p.Out.WithContext(httptrace.WithClientTrace(p.Out.Context(), &httptrace.ClientTrace{
		GotConn: x.contact.got,
	}))
}

// passTrailers passes on the trailers that a request has announced, once its body has come.
func (g *Gateway) passTrailers(p *httputil.ProxyRequest) {
	g.dropMisleading(p.Out.Trailer)
	for _, name := range framing {
		p.Out.Trailer.Del(name)
	}
	if len(p.Out.Trailer) > 0 {
		p.Out.Body = &trailedBody{p.Out.Body, p.In.Trailer, p.Out.Trailer}
	}
}

// trailedBody is a body whose trailers net/http adds to those received at its end.
type trailedBody struct {
	io.ReadCloser

	received, sent http.Header
}

func (b *trailedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, io.EOF) {
		for name := range b.sent {
			b.sent[name] = b.received[name]
		}
	}
	return n, err
}

// forwardedHost has the host that a client asked for.
const forwardedHost = "X-Forwarded-Host"

// forwarded sets the headers that name the request's origin, and keeps trusted ones of the client.
// The client's Host is among them where the service gets it as well: it is part of what is compared
// then, and without it a key is good under every name of the gateway.
func (g *Gateway) forwarded(p *httputil.ProxyRequest) {
	if before := p.In.Header.Values("X-Forwarded-For"); g.config.TrustForwarded && len(before) > 0 {
		p.Out.Header["X-Forwarded-For"] = before
	}
	p.SetXForwarded()
	if !g.config.PreserveHost {
		p.Out.Header.Del(forwardedHost)
	}
	for _, name := range []string{forwardedHost, "X-Forwarded-Proto"} {
		if said := p.In.Header.Values(name); g.config.TrustForwarded && len(said) > 0 {
			p.Out.Header[name] = said
		}
	}
}

// hideKeys keeps net/http from sending a request again that is not safe, when a kept connection
// turns out to be dead: it would do so with an Idempotency-Key, if there is no body. So those
// headers get names that it does not look for, which are the same on the wire.
func hideKeys(p *httputil.ProxyRequest) {
	for _, name := range []string{idempotency.KeyHeader, "X-" + idempotency.KeyHeader} {
		if values := p.In.Header.Values(name); len(values) > 0 {
			p.Out.Header.Del(name)
			p.Out.Header[strings.ToLower(name)] = values
		}
	}
}

// once makes a request one that net/http does not send again by itself, whatever its method: a safe
// one gets an empty body that can be read once. One that is not safe goes to another connection if
// nothing was written to the first, which the service had closed after an earlier answer; its body
// can be read again for that, see [anew].
func once(p *httputil.ProxyRequest) {
	out := p.Out
	out.GetBody = nil
	if whole, is := p.In.Body.(io.ReaderAt); is && !muxpattern.IsSafe(out.Method) {
		out.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(whole, 0, p.In.ContentLength)), nil
		}
	}
	out.Header.Del("Expect") // the body is here already
	hideKeys(p)
	if muxpattern.IsSafe(out.Method) && (out.Body == nil || out.Body == http.NoBody) {
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader("")), 0
		// an unknown length would else be sent in chunks
		out.TransferEncoding = []string{"identity"}
	}
}

// inspect looks at the upstream's answer before it is passed on.
func (g *Gateway) inspect(answer *http.Response) error {
	g.config.Upstream.outside(answer, exchangeOf(answer.Request.Context()).host)
	keepStatusText(answer)
	dropAdded(answer.Header)
	answer.Header.Del(requestIDHeader) // the answer has the gateway's, which the upstream was told
	if answer.StatusCode < http.StatusOK && answer.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("%d is no status of an answer", answer.StatusCode)
	}
	said := answer.Header.Values(idempotency.NotBegunHeader)
	answer.Header.Del(idempotency.NotBegunHeader)
	attempt, isGuarded := idempotency.FromContext(answer.Request.Context())
	if !isGuarded {
		return nil
	}
	if answer.StatusCode > 599 {
		return fmt.Errorf("status %d cannot be recorded", answer.StatusCode)
	}
	g.endBy(answer, attempt, said)
	// announced trailers would be recorded as headers; ReverseProxy passes others after the body
	answer.Trailer = nil
	return nil
}

// upgrade is what a request wants its connection to become; "" for none.
func upgrade(header http.Header) string {
	if lists(header, "Connection", "Upgrade") {
		return header.Get("Upgrade")
	}
	return ""
}

// isH2C reports whether a client offers HTTP/2, which would pass every guard. It works without.
func isH2C(header http.Header) bool { return lists(header, "Upgrade", "h2c") }

// lists reports whether a header that is a list has a word, in capitals or not.
func lists(header http.Header, name, word string) bool {
	for one := range strings.SplitSeq(strings.Join(header.Values(name), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(one), word) {
			return true
		}
	}
	return false
}

func dropUpgrade(header http.Header) {
	for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
		header.Del(name)
	}
}
