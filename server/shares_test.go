package server_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
)

// neighbours are two principals, each with names of its own.
var neighbours = map[string]access.Record{
	"a": {Role: access.Use, Names: access.Names{"a:*"}}, "b": {Role: access.Use, Names: access.Names{"b:*"}},
}

// opens asks for an id of each of some names that are a caller's, and returns of how many it got
// one. The others are refused with 503.
func (g *keyed) opens(t *testing.T, caller, path string, from, to int) (n int) {
	t.Helper()
	for i := from; i < to; i++ {
		a := g.as(t, caller, "GET", fmt.Sprintf("%s/%s:%d", path, caller, i), "")
		if a.status == http.StatusOK {
			n++
			continue
		}
		a.wantStatus(t, http.StatusServiceUnavailable)
	}
	return n
}

func TestOnePrincipalDoesNotUseUpPoolsAndTags(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{IDPools: 8, Segments: segment.Config{MaxTags: 8}}, neighbours)
	for _, path := range []string{"/id/snowflake", "/id/segment"} {
		expect.Equal(t, path+": names of a, alone", g.opens(t, "a", path, 0, 12), 8)
		expect.Equal(t, path+": names of b, beside a", g.opens(t, "b", path, 0, 12), 4)
		expect.Equal(t, path+": further names of a", g.opens(t, "a", path, 20, 30), 0)
		expect.Equal(t, path+": names of b again", g.opens(t, "b", path, 0, 4), 4)
	}
}

func TestOnePrincipalDoesNotKeepOthersFromListening(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, neighbours)
	var all []*listening
	for range 64 {
		l := g.listen(t, g.bearer("a")...)
		l.until("hello")
		all = append(all, l)
	}
	expect.Equal(t, "the 65th GET /events of a: status", g.listen(t, g.bearer("a")...).status, 429)
	l := g.listen(t, g.bearer("b")...)
	l.until("hello")
	all[0].wantEnd("crowded")
	expect.Equal(t, "listeners", g.server.Listeners(), 64)
	all[1].close()
	expect.Eventually(t, "the place of a listener that left is free", func() bool { return g.server.Listeners() == 63 })
	expect.Equal(t, "another GET /events of a: status", g.listen(t, g.bearer("a")...).status, 200)
}

// queue is waiting for a lock that is held, so many requests of a caller.
func (g *keyed) queue(ctx context.Context, t *testing.T, caller, name string, n int) {
	t.Helper()
	g.as(t, "admin", "POST", "/lock/"+name, forAnHourHeld).wantStatus(t, 201)
	for i := range n {
		go func() {
			a, err := g.send(ctx, call{method: "POST", path: "/lock/" + name, body: anHoursWait, header: g.bearer(caller)})
			if err == nil && a.status != http.StatusConflict { // it waits until the test ends
				t.Errorf("wait %d of %s: %v, want it to go on", i+1, caller, a)
			}
		}()
	}
	expect.Eventually(t, "all stand in line", func() bool {
		return decode[api.Lock](t, g.as(t, "admin", "GET", "/lock/"+name, ""), 200).Waiting == n
	})
}

// refused wants a request to be told to come again in a second.
func (g *keyed) refused(t *testing.T, a answer) {
	t.Helper()
	checkProblem(t, a, api.TooManyRequests)
	a.wantRetryAfter(t, 1, 1)
}

func TestOnePrincipalHasAShareOfTheWaitsForLocks(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{LockWaits: 8, RequestTimeout: 2 * time.Hour}, neighbours)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	g.queue(ctx, t, "a", "a:l", 4)
	g.refused(t, g.as(t, "a", "POST", "/lock/a:l", anHoursWait))
	g.as(t, "a", "POST", "/lock/a:free", anHoursWait).wantStatus(t, 429) // it may have to wait
	g.as(t, "a", "POST", "/lock/a:free", forAnHourHeld).wantStatus(t, 201)
	checkProblem(t, g.as(t, "a", "POST", "/lock/a:l", forAnHourHeld), api.LockHeld)
	g.queue(ctx, t, "b", "b:l", 2)
	g.refused(t, g.as(t, "b", "POST", "/lock/b:l", anHoursWait))
	g.queue(ctx, t, "use", "l", 2)
	g.refused(t, g.as(t, "admin", "POST", "/lock/l", anHoursWait)) // all are taken
	hangUp()
	expect.Eventually(t, "the waits that were given up leave their places", func() bool {
		return g.as(t, "a", "POST", "/lock/a:free", `{"wait_ms":1}`).status == http.StatusConflict
	})
}

func TestWaitsForLocksAreBoundedWithoutAccessControl(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), LockWaits: 3, RequestTimeout: 2 * time.Hour})
	s.lock(t, "l", forAnHourHeld)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	for i := range 3 {
		defer func(answers <-chan answer) { hangUp(); <-answers }(s.waiting(ctx, t, "l", anHoursWait, i))
	}
	a := s.do(t, "POST", "/lock/l", anHoursWait)
	checkProblem(t, a, api.TooManyRequests)
	a.wantRetryAfter(t, 1, 1)
}

func TestRequestsUnderWayAreBoundedAsConnectionsAre(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{MaxConnections: 8, RequestTimeout: 2 * time.Hour}, neighbours)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	g.queue(ctx, t, "a", "a:l", 3)
	g.as(t, "a", "GET", "/lock/a:l", "").wantStatus(t, 200)
	g.queue(ctx, t, "b", "b:l", 1)
	g.refused(t, g.as(t, "a", "GET", "/lock/a:l", ""))
	g.as(t, "a", "GET", "/livez", "").wantStatus(t, 200)
	g.as(t, "b", "GET", "/incr/b:k", "").wantStatus(t, 200)
	g.queue(ctx, t, "b", "b:m", 1)
	g.refused(t, g.as(t, "b", "GET", "/incr/b:k", ""))
	leaf := g.as(t, "b", "GET", "/api/segment/get/b:t", "")
	leaf.wantStatus(t, 500)
	expect.Contains(t, leaf.asked, string(leaf.body), "LeafServerException")
}

// A connection of HTTP/2 says how many requests it takes at once.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	certificates := httptest.NewTLSServer(nil)
	defer certificates.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "net.Listen", err)
	s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{})})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, tls.NewListener(plain, &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"h2"}}))
	}()
	conn, err := tls.Dial("tcp", plain.Addr().String(), &tls.Config{RootCAs: certificates.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
	expect.NoError(t, "connecting", err)
	_ = conn.SetDeadline(time.Now().Add(patience))
	// with empty settings
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	const maxConcurrentStreams = 3
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil || head[3] != 4 {
		t.Fatalf("the first frame: got %v and error %v, want settings", head, err)
	}
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatalf("the settings: %v", err)
	}
	got := uint32(0)
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == maxConcurrentStreams {
			got = binary.BigEndian.Uint32(settings[2:])
		}
	}
	expect.Equal(t, "streams that a connection may have at once", got, uint32(32))
	_ = conn.Close()
	stop()
	expect.Error(t, "Serve", <-ended, nil)
}
