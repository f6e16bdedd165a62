package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// leftOf is what is left of a counter's TTL, in milliseconds; -1 = it has no end.
func leftOf(t *testing.T, store *redisstore.Store, key string) int64 {
	t.Helper()
	left, err := run(t, store, "return {'ok', tostring(redis.call('PTTL', KEYS[1]))}", onstore.Key(store, "counter", key)).Number(0)
	expect.NoError(t, "PTTL of the counter "+key, err)
	return left
}

// Role use may not remove a counter, and cannot do so with a TTL either.
func TestOnlyRoleAdminEndsACounterWithoutAnEnd(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		g := serveKeyed(t, server.Config{Store: store}, nil)
		g.as(t, "admin", "PUT", "/counter/k", `{"value":5}`).wantStatus(t, 200)
		checkProblem(t, g.as(t, "use", "DELETE", "/counter/k", ""), api.Forbidden)
		for _, query := range []string{"?ttl_ms=300", "?ttl_ms=300&limit=9", "?ttl_ms=300&limit=9&after_loss=stay", "?ttl_ms=86400000&by=3"} {
			for _, method := range []string{"GET", "POST"} {
				for _, header := range [][]string{nil, {"Idempotency-Key: " + strings.Trim(query, "?")}, {"Accept: text/plain"}} {
					refused := g.as(t, "use", method, "/incr/k"+query, "", header...)
					if problem := checkProblem(t, refused, api.CounterPermanent); problem.Retryable {
						t.Errorf("%s is retryable, want not", refused.asked)
					}
					wantDetail(t, refused, api.CounterPermanent, "k is at 5", "coatcheck counter set k 5 --ttl ")
				}
			}
		}
		expect.Equal(t, "the counter after refusals", must[api.Counter](t, g.service, 200, "GET", "/counter/k", "", g.bearer("use")...).Value, 5)
		expect.Equal(t, "what is left of it", leftOf(t, store, "k"), -1)
		added := must[api.Incremented](t, g.service, 200, "GET", "/incr/k", "", g.bearer("use")...)
		expect.Equal(t, "a call without a TTL", added.Value, 6)

		added = must[api.Incremented](t, g.service, 200, "POST", "/incr/k?ttl_ms=3600000", "", g.bearer("admin")...)
		expect.Equal(t, "a call with a TTL and role admin", added.Value, 7)
		wantBetween(t, "what is left of it", leftOf(t, store, "k"), time.Minute.Milliseconds(), time.Hour.Milliseconds())
		added = must[api.Incremented](t, g.service, 200, "POST", "/incr/k?ttl_ms=300", "", g.bearer("use")...)
		expect.Equal(t, "a call with a TTL of a counter that has an end", added.Value, 8)
		wantBetween(t, "what is left of it", leftOf(t, store, "k"), time.Minute.Milliseconds(), time.Hour.Milliseconds())
	})
}

// Without access control nobody has a role, so a slip cannot end a counter.
func TestCounterWithoutAnEndKeepsItsValuesFromATTLWithoutAccessControl(t *testing.T) {
	t.Parallel()
	store := storetest.Redis(t)
	s := serve(t, server.Config{Store: store})
	must[api.Incremented](t, s, 200, "GET", "/incr/k?by=5", "")
	wantDetail(t, s.do(t, "GET", "/incr/k?ttl_ms=300", ""), api.CounterPermanent, "k is at 5", "coatcheck counter set k 5 --ttl 300ms")
	must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":5,"ttl_ms":3600000}`)
	expect.Equal(t, "a call with a TTL once the counter has an end", must[api.Incremented](t, s, 200, "GET", "/incr/k?ttl_ms=300", "").Value, 6)
}

// A date gives a counter its end as ttl_ms does.
func TestCounterOfADateThatWasSetWithoutAnEndIsRefused(t *testing.T) {
	t.Parallel()
	store := storetest.Redis(t)
	s := serve(t, server.Config{Store: store})
	now := time.Now().UTC()
	key := "k:" + now.Format("20060102")
	query := "/incr/k?calendar=%7ByyyyMMdd%7D&at=" + now.Format(time.RFC3339)
	must[api.Counter](t, s, 200, "PUT", "/counter/"+key, `{"value":5}`)
	wantDetail(t, s.do(t, "GET", query, ""), api.CounterPermanent, key+" is at 5", fmt.Sprintf("coatcheck counter set %s 5 --ttl ", key))
	must[api.Counter](t, s, 200, "PUT", "/counter/"+key, `{"value":5,"ttl_ms":3600000}`)
	expect.Equal(t, "the value of that date", must[api.Incremented](t, s, 200, "GET", query, "").Value, 6)
}
