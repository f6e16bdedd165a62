package gateway

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A stranger whom the upstream sends away is asked again and again, and nothing of it stays in
// Redis, unless the route says that such answers are kept.
func TestUpstreamThatSendsCallersAwayFillsNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute})
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Answer"))
		w.WriteHeader(status)
	})
	r := start(t, upstream.URL, `routes:
  - {match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}
  - {match: POST /kept, lease_ms: 3600000, upstream_timeout_ms: 100000, keep: [2xx, 3xx, 4xx, 5xx]}`, on(store))
	for _, status := range []int{307, 308, 401, 403, 407, 408, 421, 425, 429} {
		for i := range 20 {
			for range 2 {
				got := r.do("POST", "/payments", "x", "Idempotency-Key: k"+strconv.Itoa(i), "Authorization: guess "+strconv.Itoa(i), "X-Answer: "+strconv.Itoa(status))
				expect.Equal(t, "status of a caller who is sent away", got.status, status)
			}
		}
	}
	upstream.wantPaid(t, 360)
	expect.Equal(t, "keys in Redis", redis.Client().DBSize(t.Context()).Val(), 0)
	for range 2 {
		expect.Equal(t, "status of the other route", r.do("POST", "/kept", "x", "Idempotency-Key: k", "X-Answer: 403").status, 403)
	}
	upstream.wantPaid(t, 361)
	expect.Equal(t, "keys in Redis then", redis.Client().DBSize(t.Context()).Val(), 1)
}

// A client may count on the time that it has read in the policy, and on no more.
func TestRepeatDoesNotRenewTheRetention(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments, on(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute})))
	r.wantReplayed(r.pay("k"), false)
	keys := redis.Client().Keys(t.Context(), "*token:*").Val()
	expect.Equal(t, "records of operations", len(keys), 1)
	redis.Client().PExpire(t.Context(), keys[0], time.Hour)
	r.wantReplayed(r.pay("k"), true)
	left := redis.Client().PTTL(t.Context(), keys[0]).Val()
	expect.Equal(t, "the record lives for longer than an hour after a repeat", left > time.Hour, false)
}
