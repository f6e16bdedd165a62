package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// askedFrom is the answer of a handler to GET /readyz from an address.
func askedFrom(t *testing.T, handler http.Handler, from string, header ...string) answer {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)
	request.Host, request.RemoteAddr = "localhost", from
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return answer{asked: "GET /readyz from " + from, status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
}

// wantPools checks which pools an answer of /readyz names. Every caller gets their number.
func wantPools(t *testing.T, a answer, want ...string) {
	t.Helper()
	ready := decode[api.Readiness](t, a, 200)
	var got []string
	for _, worker := range ready.Workers {
		got = append(got, worker.Pool)
	}
	expect.Equal(t, a.asked+": pools", got, want)
	expect.Equal(t, a.asked+": tells the incarnation", ready.Incarnation != "", len(want) > 0)
	expect.Equal(t, a.asked+": worker ids", ready.WorkerIDs, &api.WorkerCount{Held: 2})
}

const (
	here      = "127.0.0.1:4711"
	elsewhere = "192.0.2.7:4711"
)

func TestStrangersHearWhetherTheServiceIsReadyAndNoNames(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{IDPool: "main"}, map[string]access.Record{"limited": {Role: access.Read, Names: access.Names{"orders*"}}})
	g.as(t, "use", "GET", "/id/snowflake", "").wantStatus(t, 200)
	g.as(t, "use", "GET", "/id/snowflake/orders", "").wantStatus(t, 200)
	clients, admin := g.server.Handler(), g.server.Admin()
	for _, from := range []string{here, elsewhere} {
		for caller, want := range map[string][]string{
			"anonymous": nil, "wrong": nil, "read": {"main", "orders"}, "use": {"main", "orders"}, "admin": {"main", "orders"}, "limited": {"orders"},
		} {
			var header []string
			if caller != "anonymous" {
				header = []string{"X-Api-Key", g.keys[caller].Text()}
			}
			a := askedFrom(t, clients, from, header...)
			a.asked += " as " + caller
			wantPools(t, a, want...)
			a.wantHeader(t, "Www-Authenticate", "")
		}
	}
	wantPools(t, askedFrom(t, admin, here), "main", "orders")
	wantPools(t, askedFrom(t, admin, elsewhere))
	wantPools(t, askedFrom(t, admin, elsewhere, "X-Api-Key", g.keys["read"].Text()), "main", "orders")
}

func TestWithoutAccessControlThisMachineAloneHearsNames(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main"})
	s.ids(t, "/id/snowflake")
	s.ids(t, "/id/snowflake/orders")
	for _, from := range []string{here, "[::1]:4711", "[::ffff:127.0.0.1]:4711"} {
		wantPools(t, askedFrom(t, s.server.Handler(), from), "main", "orders")
	}
	wantPools(t, askedFrom(t, s.server.Handler(), elsewhere))
}

// Every caller gets the reason why the service is not ready; callers that may read get its figures.
func TestStrangersHearTheClassOfAReason(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Ack: 1, Timeout: storePatience, AckTimeout: 50 * time.Millisecond})
	s := serve(t, server.Config{Store: store})
	for from, want := range map[string]string{elsewhere: api.NewProblem(api.OutcomeUnknown, "").Title, here: "writes are acknowledged by 0 of 1 replicas"} {
		a := askedFrom(t, s.server.Handler(), from)
		expect.Equal(t, a.asked+": reason", decode[api.Readiness](t, a, 503).Reason, want)
	}
}

// Who may read is told which Redis is away, and since when; others that it is.
func TestReadinessSaysWhereTheStoreIsThatIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: strings.Replace(redis.URL(), "redis://", "redis://:secret@", 1), Timeout: time.Second})
	s := serve(t, server.Config{Store: store})
	before := time.Now().UTC().Add(-time.Second)
	redis.Stop()
	var first, next api.Readiness
	expect.Eventually(t, "the store is seen to be away", func() bool {
		a := askedFrom(t, s.server.Handler(), here)
		return a.status == 503
	})
	first = decode[api.Readiness](t, askedFrom(t, s.server.Handler(), here), 503)
	expect.Equal(t, "address", first.Address, redis.URL())
	wantBetween(t, "since", first.Since.Sub(before), 0, time.Since(before))
	time.Sleep(1100 * time.Millisecond) // an answer stands for a second
	next = decode[api.Readiness](t, askedFrom(t, s.server.Handler(), here), 503)
	expect.Equal(t, "since, asked again", next.Since, first.Since)
	stranger := decode[api.Readiness](t, askedFrom(t, s.server.Handler(), elsewhere), 503)
	expect.Equal(t, "address for a stranger", stranger.Address, "")
	expect.Equal(t, "since for a stranger", stranger.Since.IsZero(), true)
}
