package server_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestRouteWithoutAPricePanicsAtTheStart(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "GET /unpriced says no price") {
			t.Errorf("a service with a route without a price: got panic %q, want one that names GET /unpriced", text)
		}
	}()
	server.WithUnpricedRoute()
}

// A route that the document describes as a list, or as a page of a ring, is one of those of which
// few are under way at once.
func TestRouteOfAListHasThePriceOfOne(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
	lists := 0
	for _, route := range s.server.Routes() {
		operation := apitest.Published().Document.Paths.Value(route.Path).GetOperation(route.Method)
		if operation == nil {
			continue // another method of a door
		}
		for _, p := range operation.Parameters {
			if p.Value.Name == "cursor" {
				lists++
				expect.Equal(t, route.Method+" "+route.Path+" has a page: few at once", server.IsFewAtOnce(route), true)
			}
		}
	}
	expect.Equal(t, "pages that were looked at", lists, 5)
}

func TestOnePrincipalHasAShareOfTheLists(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, neighbours)
	paths := []string{"/counter", "/lock", "/worker", "/console/api/history"}
	n, leave := g.server.HoldLists("a", 100)
	expect.Equal(t, "lists at once of a principal alone", n, 8)
	for _, path := range paths {
		a := g.as(t, "a", "GET", path, "")
		g.refused(t, a)
		expect.Contains(t, path+": detail", decode[api.Problem](t, a, 429).Detail, "one after the other")
		g.as(t, "b", "GET", path, "").wantStatus(t, 200)
	}
	for _, path := range []string{"/metrics", "/incr/a:k", "/counter/a:k", "/readyz", "/docs"} {
		g.as(t, "a", "GET", path, "").wantStatus(t, 200)
	}
	leaf := g.as(t, "a", "GET", "/cache", "")
	leaf.wantStatus(t, 500)
	expect.Contains(t, leaf.asked, string(leaf.body), "LeafServerException", "Asked too often")
	leave()
	for _, path := range paths {
		g.as(t, "a", "GET", path, "").wantStatus(t, 200)
	}
}

func TestOneStrangerHasAShareOfTheDocuments(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	n, leave := s.server.HoldDocuments("127.0.0.1", 100)
	expect.Equal(t, "documents at once of an address alone", n, 8)
	for _, path := range []string{"/docs", "/openapi.yaml"} {
		a := s.do(t, "GET", path, "")
		checkProblem(t, a, api.TooManyRequests)
		a.wantRetryAfter(t, 1, 1)
	}
	s.do(t, "GET", "/counter", "").wantStatus(t, 200)
	leave()
	s.do(t, "GET", "/docs", "").wantStatus(t, 200)
}

// The bodies of one principal are refused while another one's are taken.
func TestOnePrincipalHasAShareOfTheMemory(t *testing.T) {
	t.Parallel()
	keys := [2]access.Key{access.NewKey(), access.NewKey()}
	policy, err := access.Open(t.Context(), access.Config{Keys: []access.Record{
		{ID: keys[0].ID, Hash: keys[0].Hash(), Principal: "a", Role: access.Use}, {ID: keys[1].ID, Hash: keys[1].Hash(), Principal: "b", Role: access.Use},
	}})
	expect.NoError(t, "making the keys", err)
	defer policy.Close()
	const size = 100_000
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: policy, MaxBytes: 2 << 20, MaxBody: size, RequestTimeout: time.Hour})
	as := func(who int) string { return "Authorization: Bearer " + keys[who].Text() }
	const held = 5 // bodies of which each counts twice; half of the memory has room for that
	for range held {
		_, _ = io.WriteString(s.connect(t), "POST /token HTTP/1.1\r\nHost: localhost\r\n"+as(0)+"\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat(" ", size-1))
	}
	inFlight := func() float64 {
		return readFigures(t, string(s.do(t, "GET", "/metrics", "", as(1)).body))["in_flight_bytes"]
	}
	expect.Eventually(t, "the bodies are in memory", func() bool { return inFlight() == held*2*(size-1) })
	a := s.do(t, "POST", "/token", strings.Repeat(" ", size), as(0))
	checkProblem(t, a, api.TooManyRequests)
	a.wantRetryAfter(t, 1, 1)
	expect.Contains(t, a.asked+": detail", decode[api.Problem](t, a, 429).Detail, "as much memory as they may")
	s.do(t, "POST", "/token", strings.Repeat(" ", size), as(1)).wantStatus(t, 201)
	s.do(t, "GET", "/incr/k", "", as(0)).wantStatus(t, 200)
}
