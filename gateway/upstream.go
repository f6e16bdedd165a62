package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Upstream is the address of the service behind the gateway.
type Upstream struct {
	url    *url.URL
	socket string // of a unix upstream; else ""
}

// ParseUpstream reads an upstream's address: http:// or https:// with a path that goes before every
// request's path, or unix:// with a socket's path. The error repeats no possible password.
func ParseUpstream(text string) (Upstream, error) {
	target, err := url.Parse(text)
	if err != nil {
		return Upstream{}, errors.New("not a URL such as http://127.0.0.1:3000")
	}
	_, notPlain := readPath(cmp.Or(target.EscapedPath(), "/"))
	switch {
	case target.Scheme != "unix" && notPlain != nil:
		return Upstream{}, fmt.Errorf("its path is not plain: %w", notPlain)
	case target.User != nil:
		return Upstream{}, errors.New("a user and a password do not belong here: clients send their own credentials")
	case target.RawQuery != "" || target.Fragment != "":
		return Upstream{}, errors.New("a URL with a host and a path, and nothing after it")
	case target.Scheme == "unix" && target.Host == "" && filepath.IsAbs(target.Path):
		return Upstream{url: &url.URL{Scheme: "http", Host: "localhost"}, socket: target.Path}, nil
	case (target.Scheme == "http" || target.Scheme == "https") && target.Hostname() != "":
		return Upstream{url: target}, nil
	}
	return Upstream{}, errors.New("http://host:port, https://host:port or unix:///path/to/socket")
}

// String returns the upstream as it was given.
func (u Upstream) String() string {
	if u.socket != "" {
		return "unix://" + u.socket
	}
	if u.url == nil {
		return ""
	}
	return u.url.String()
}

// leaves reports whether a path could lead out of the path that the upstream's address has.
func (u Upstream) leaves(path string) bool {
	return strings.Trim(u.url.Path, "/") != "" && hasDots(segmentsOf(path))
}

const (
	dialTimeout = 5 * time.Second
	// how long an unused connection for requests that may be sent again is kept.
	idleOpen = 90 * time.Second
	// A shorter time keeps no connection.
	shortestIdle = 10 * time.Millisecond
)

// openTransport carries requests that are not guarded, with net/http's defaults: HTTP/2 if the
// upstream has it, and safe requests are sent again when a kept connection turns out to be dead. Of
// others it gets those with a body, which is sent once.
func (u Upstream) openTransport(config *tls.Config) *http.Transport {
	t := u.transport(config)
	t.Protocols.SetHTTP2(true)
	t.IdleConnTimeout = idleOpen
	return t
}

// guardedTransport carries guarded requests: HTTP/1.1 only, so that a connection that breaks takes
// one request with it and not all of them, and so that net/http has no reason of HTTP/2 to send one
// again. idle is shorter than what servers allow, so that the upstream does not close a connection
// at the moment of its next use. Below shortestIdle each request has a connection of its own,
// because net/http puts a connection away before it has handed over an answer without a body: if
// the idle time ends in between, that answer is lost.
func (u Upstream) guardedTransport(config *tls.Config, idle time.Duration) *http.Transport {
	t := u.transport(config)
	t.IdleConnTimeout, t.DisableKeepAlives = idle, idle < shortestIdle
	// said in the handshake: a service that has HTTP/2 alone ends it, before anything is sent
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return t
}

func (u Upstream) transport(config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if u.socket != "" {
				network, address = "unix", u.socket
			}
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return countConn(conn), nil
		},
		TLSClientConfig:     cmp.Or(config, &tls.Config{MinVersion: tls.VersionTLS12}).Clone(),
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true, // a body is passed on as it was sent
		MaxIdleConnsPerHost: 256,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}
