package server_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestCounterGoesBackOnPurposeOnly(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":7}`)
		must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":7}`)
		for _, query := range []string{"", "?back=false"} {
			refused := s.do(t, "PUT", "/counter/k"+query, `{"value":6,"ttl_ms":1000}`)
			wantDetail(t, refused, api.CounterBack, "k is at 7: set to 6", "back=true", "coatcheck counter set --back")
			expect.Equal(t, refused.asked+": field, and whether it is retryable",
				fmt.Sprint(checkProblem(t, refused, api.CounterBack).Field, " ", checkProblem(t, refused, api.CounterBack).Retryable), "value false")
		}
		expect.Equal(t, "the counter after refusals", must[api.Incremented](t, s, 200, "GET", "/incr/k", "").Value, 8)
		must[api.Counter](t, s, 200, "PUT", "/counter/k?back=true", `{"value":-6}`)
		expect.Equal(t, "the counter that was set back", must[api.Incremented](t, s, 200, "GET", "/incr/k", "").Value, -5)
	})
}

func TestCounterThatHoldsNoIntegerIsSetOnPurposeOnly(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	f := newFixture(t, store)
	f.put(t, store, "text", "SET", "a text")
	checkProblem(t, f.s.do(t, "PUT", "/counter/text", `{"value":6}`), api.NotAnInteger)
	must[api.Counter](t, f.s, 200, "PUT", "/counter/text?back=true", `{"value":6}`)
}

// RFC 9110, section 13.1: a counter has an entity tag in each media type.
func TestPreconditionsOfACounter(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		put := func(value int64, header string) answer {
			return s.do(t, "PUT", "/counter/k", fmt.Sprintf(`{"value":%d}`, value), header)
		}
		for _, header := range []string{`If-Match: *`, `If-Match: "5"`, `If-Match: ""`} {
			checkProblem(t, put(5, header), api.PreconditionFailed)
		}
		checkProblem(t, s.do(t, "DELETE", "/counter/k", "", `If-Match: "5"`), api.NotFound)
		checkProblem(t, s.do(t, "GET", "/counter/k", "", `If-Match: *`), api.NotFound)
		put(5, `If-None-Match: *`).wantStatus(t, 200)
		read, text := s.do(t, "GET", "/counter/k", ""), s.do(t, "GET", "/counter/k", "", "Accept: text/plain")
		json, plain := read.header.Get("ETag"), text.header.Get("ETag")
		expect.Equal(t, "the entity tags", json+" "+plain, `"5" "5.text"`)

		for _, header := range []string{
			`If-None-Match: *`, `If-None-Match: ` + json, `If-None-Match: "4", W/` + json, `If-None-Match: ` + plain, `If-Match: "4"`, `If-Match: W/` + json, `If-Match: "05"`,
			`If-Match: "x"`, `If-Match: "4","6" , "5,"`,
		} {
			for _, value := range []int64{9, 1} { // also of a value that would be refused
				checkProblem(t, put(value, header), api.PreconditionFailed)
			}
			checkProblem(t, s.do(t, "DELETE", "/counter/k", "", header), api.PreconditionFailed)
		}
		for _, header := range []string{`If-Match: 5`, `If-Match: `, `If-Match: "5`, `If-Match: *, "5"`, `If-None-Match: x`, `If-None-Match: "4" "5"`} {
			field, _, _ := strings.Cut(header, ":")
			for _, method := range []string{"PUT", "DELETE", "GET"} {
				body := map[string]string{"PUT": `{"value":9}`}[method]
				expect.Equal(t, method+" with "+header, checkProblem(t, s.do(t, method, "/counter/k", body, header), api.InvalidRequest).Field, field)
			}
		}
		expect.Equal(t, "the counter after refusals", must[api.Counter](t, s, 200, "GET", "/counter/k", "").Value, 5)
		for value, header := range map[int64]string{6: `If-Match: ` + json, 7: `If-Match: "6.text"`, 8: `If-Match: "1", "7"`, 9: `If-Match: *`, 10: `If-None-Match: "1"`} {
			must[api.Counter](t, s, 200, "PUT", "/counter/k?back=true", fmt.Sprintf(`{"value":%d}`, value-1))
			put(value, header).wantStatus(t, 200)
		}
		must[api.Counter](t, s, 200, "PUT", "/counter/k?back=true", `{"value":-10}`)
		must[nothing](t, s, 204, "DELETE", "/counter/k", "", `If-Match: "-10"`)
	})
}

func TestConditionalReadingOfACounter(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":5}`)
	const text = "Accept: text/plain"
	for _, header := range [][]string{{`If-None-Match: "5"`}, {`If-None-Match: W/"5"`}, {`If-None-Match: "4", "5"`}, {`If-None-Match: *`}, {`If-None-Match: "5.text"`, text}} {
		same := s.do(t, "GET", "/counter/k", "", header...)
		same.wantStatus(t, 304)
		same.wantBody(t, "")
		same.wantHeader(t, "ETag", map[bool]string{true: `"5.text"`, false: `"5"`}[len(header) > 1])
		same.wantHeader(t, "Cache-Control", "no-store")
	}
	for _, header := range [][]string{{`If-None-Match: "4"`}, {`If-None-Match: "5.text"`}, {`If-None-Match: "5"`, text}, {`If-Match: "5"`}, {`If-Match: *`}} {
		s.do(t, "GET", "/counter/k", "", header...).wantStatus(t, 200)
	}
	checkProblem(t, s.do(t, "GET", "/counter/k", "", `If-Match: "4"`), api.PreconditionFailed)
	checkProblem(t, s.do(t, "GET", "/counter/k", "", `If-Match: W/"5"`), api.PreconditionFailed)
}

// Of many that have read the same value one sets the counter.
func TestOneOfManySetsACounterThatAllHaveRead(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Redis(t)})
	must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":5}`)
	var set, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			switch s.do(t, "PUT", "/counter/k", fmt.Sprintf(`{"value":%d}`, 100+i), `If-Match: "5"`).status {
			case 200:
				set.Add(1)
			case 412:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	expect.Equal(t, "requests that have set it, and that were refused", [2]int64{set.Load(), refused.Load()}, [2]int64{1, 15})
}

// No request that changes something ignores a precondition: it holds, or nothing is done.
func TestPreconditionsAreNotIgnored(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	const shape = `{"layout":"41/10/12"}`
	for _, header := range []string{`If-Match: *`, `If-Match: "x"`} {
		checkProblem(t, s.do(t, "PUT", "/worker/new", shape, header), api.PreconditionFailed)
	}
	checkProblem(t, s.do(t, "GET", "/worker/new", ""), api.NotFound)
	s.do(t, "PUT", "/worker/new", shape, `If-None-Match: *`).wantStatus(t, 201)
	checkProblem(t, s.do(t, "PUT", "/worker/new", shape, `If-None-Match: *`), api.PoolExists)
	checkProblem(t, s.do(t, "PUT", "/worker/new?replace=true", shape, `If-None-Match: *`), api.PreconditionFailed)

	held := must[api.LockGranted](t, s, 201, "POST", "/lock/k", `{"ttl_ms":3600000}`)
	lease := "Lease-Token: " + held.Lease
	for _, method := range []string{"PUT", "DELETE"} {
		for _, header := range []string{`If-Match: "x"`, `If-None-Match: *`} {
			checkProblem(t, s.do(t, method, "/lock/k", "", lease, header), api.PreconditionFailed)
		}
		checkProblem(t, s.do(t, method, "/lock/k", "", lease, `If-None-Match: x`), api.InvalidRequest)
	}
	s.do(t, "PUT", "/lock/k", "", lease, `If-Match: *`).wantStatus(t, 200)
	s.do(t, "DELETE", "/lock/k", "", lease, `If-None-Match: "x"`).wantStatus(t, 204)

	for _, call := range [][3]string{
		{"POST", "/token", "{}"}, {"POST", "/incr/k", ""}, {"POST", "/lock/k", "{}"}, {"POST", "/limit/k", `{"rate":1,"per_ms":60000}`},
		{"PUT", "/id/segment/k", `{"next":"5"}`}, {"DELETE", "/limit/k", ""},
		// what these hand out is gone, though their method is safe
		{"GET", "/incr/k", ""}, {"GET", "/id/snowflake", ""}, {"GET", "/id/snowflake/orders", ""}, {"GET", "/id/segment/k", ""}, {"GET", "/id/uuid", ""},
	} {
		for _, header := range []string{`If-Match: *`, `If-None-Match: *`, `If-Match: "x"`} {
			checkProblem(t, s.do(t, call[0], call[1], call[2], header), api.PreconditionFailed)
		}
		s.do(t, call[0], call[1], call[2], "If-Unmodified-Since: "+time.Unix(0, 0).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	}
	checkProblem(t, s.do(t, "GET", "/counter/other", ""), api.NotFound)
}
