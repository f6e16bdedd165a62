// Package linktest puts a link between a client and a server, and breaks it in the ways in which
// networks do: by toxiproxy, in the test's own process. A link ends with the test. Its methods may
// be called by several goroutines, and a link stays as they have left it.
package linktest

import (
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is a link to one server.
type Link struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// Start makes a link to an address.
func Start(t testing.TB, target string) *Link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", target)
	if err := proxy.Start(); err != nil {
		t.Fatalf("linktest: %v", err)
	}
	t.Cleanup(proxy.Stop)
	return &Link{t, proxy}
}

// Addr is where clients find the server, 127.0.0.1:port.
func (l *Link) Addr() string { return l.proxy.Listen }

// Swallow has nothing come through any more, either way, on connections that are there and on new
// ones. All of them stay.
func (l *Link) Swallow() {
	l.t.Helper()
	l.swallow("upstream")
	l.swallow("downstream")
}

// SwallowAnswers has everything come through to the server, and nothing back.
func (l *Link) SwallowAnswers() {
	l.t.Helper()
	l.swallow("downstream")
}

func (l *Link) swallow(stream string) {
	l.t.Helper()
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(`{"type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`)); err != nil {
		l.t.Fatalf("linktest: %v", err)
	}
}

// Close closes all connections, and refuses new ones.
func (l *Link) Close() { l.proxy.Stop() }
