package gateway

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/recordtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The first hears of it with its next heartbeat, a third of the lease later.
func TestTakeoverRunsAgainWithALargerFenceAndTheFirstIsTold(t *testing.T) {
	t.Parallel() // it waits
	fences := make(chan string, 2)
	first := make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		fence := r.Header.Get("Idempotency-Fence")
		fences <- fence
		if len(fences) == 1 {
			close(first)
			<-r.Context().Done() // silent until the gateway gives up
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, fence)
	})
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	r := start(t, upstream.URL, `routes: [{match: POST /payments, policy: takeover, lease_ms: 9000}]`, on(store))
	told := make(chan answer, 1)
	go func() { told <- r.do("POST", "/payments", "x", "Idempotency-Key: a") }()
	<-first
	var second answer
	expect.Eventually(t, "the lease has lapsed while a client asks", func() bool {
		lapse(t, redis.Client())
		second = r.do("POST", "/payments", "x", "Idempotency-Key: a")
		return second.status == 201
	})
	r.wantSuperseded(<-told)
	old, young := <-fences, <-fences
	if a, b := number64(t, old), number64(t, young); a >= b {
		t.Errorf("fences: got %d and then %d, want the second to be larger", a, b)
	}
	r.wantPaid(second, young, false)
	r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a"), young, true)
	upstream.wantPaid(t, 2)
}

// When the store does not answer for a whole lease, another attempt may run, so the gateway ends
// this one. Its client does not get its answer.
func TestAttemptThatCanNotProveItsClaimIsEndedAndNotRecorded(t *testing.T) {
	t.Parallel() // it waits
	redis := redistest.Start(t)
	var runs atomic.Int64
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			redis.Pause()
			<-r.Context().Done()
			redis.Resume()
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 3 * time.Second})
	r := start(t, upstream.URL, `routes: [{match: POST /payments, policy: takeover, lease_ms: 6000}]`, on(store))
	r.wantSuperseded(r.pay("a"))
	expect.Eventually(t, "another attempt may run", func() bool { return r.pay("a").status == 201 })
	r.wantPaid(r.pay("a"), "", true)
	upstream.wantPaid(t, 2)
}

// An attempt that was replaced and does not know it yet: its answer is not let out, whether it is
// kept or too large to be.
func TestAnswerOfAReplacedAttemptIsNotLetOut(t *testing.T) {
	for _, size := range []int{5, 5000} {
		begun, proceed := make(chan struct{}), make(chan struct{})
		var runs atomic.Int64
		upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
			if runs.Add(1) == 1 {
				close(begun)
				<-proceed
			}
			_, _ = w.Write(make([]byte, size))
		})
		redis := redistest.Start(t)
		store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
		r := start(t, upstream.URL, `routes: [{match: POST /payments, policy: takeover, lease_ms: 3600000, max_answer_bytes: 100}]`, on(store))
		told := make(chan answer, 1)
		go func() { told <- r.do("POST", "/payments", "x", "Idempotency-Key: a") }()
		<-begun
		lapse(t, redis.Client())
		a := r.do("POST", "/payments", "x", "Idempotency-Key: a")
		expect.Equal(t, a.asked, a.status, 200)
		expect.Equal(t, a.asked+": bytes", len(a.body), size)
		close(proceed)
		r.wantSuperseded(<-told)
		upstream.wantPaid(t, 2)
	}
}

// lapse ends every claim's lease, as if its holder had been silent.
func lapse(t *testing.T, client *redis.Client) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "coatcheck:token:{*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys of claims: got %q and error %v, want at least one", keys, err)
	}
	for _, key := range keys {
		record := recordtest.With(client.Get(t.Context(), key).Val(), "until", "1")
		if err := client.SetArgs(t.Context(), key, record, redis.SetArgs{KeepTTL: true}).Err(); err != nil {
			t.Fatalf("ending the lease of %s: %v", key, err)
		}
	}
}

func number64(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	expect.MustEqual(t, "the error of reading the number "+text, err, nil)
	return n
}

// wantSuperseded wants the answer of a replaced attempt, whose client gets that of the other one
// when it asks again.
func (r *rig) wantSuperseded(a answer) {
	r.t.Helper()
	told := a.problem()
	expect.Equal(r.t, "what is told", []any{a.status, told.Code, told.Retryable, a.header.Get("Retry-After")},
		[]any{http.StatusConflict, api.Superseded, true, "1"})
}
