package idempotency

import (
	"bytes"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// A claim is given back at a master whose replica does not hear of it. The replica, which has the
// claim alone, becomes master. Nothing was started, so the key is free again all the same.
func TestClaimThatWasGivenBackAtTheMasterAloneIsGivenBackAtTheNext(t *testing.T) {
	t.Parallel()
	for name, never := range map[string]struct {
		op    string // after which the replica hears nothing more
		began func(r *http.Request)
	}{
		"no replica has confirmed it": {"token_claim", func(*http.Request) {}},
		"the work never began": {"", func(r *http.Request) {
			attempt, _ := FromContext(r.Context())
			attempt.Release()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, replica, third := redistest.Start(t), redistest.Start(t), redistest.Start(t)
			var deaf atomic.Bool // the master, for what the replica confirms
			link := redistest.StartProxy(t, master.Addr(), func(request []byte) (redistest.Fate, func()) {
				if deaf.Load() && bytes.Contains(request, []byte("ACK")) {
					return redistest.Swallow, nil
				}
				return redistest.Pass, nil
			})
			follow(t, replica, link.Addr())
			front := engines.Start(t, master.Addr(), engines.Engine{})
			cut := &hook{op: never.op}
			tokens := newTokens(t, storetest.Open(t, redisstore.Config{
				URL: front.URL(), Ack: 1, Timeout: 10 * time.Second, AckTimeout: time.Second, Observers: []observe.Observer{{CallEnded: cut.CallEnded}},
			}))
			var down atomic.Bool
			guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(&handler{serve: func(w http.ResponseWriter, r *http.Request) {
				if down.Load() {
					link.SwallowAnswers()
					never.began(r)
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}})
			expect.Eventually(t, "the replica confirms", func() bool { return post(guarded, "pay", "Idempotency-Key: first").Code == 200 })

			deaf.Store(never.op != "")
			down.Store(true)
			cut.run = link.SwallowAnswers
			expect.Equal(t, "status of a request that does nothing", post(guarded, "pay", "Idempotency-Key: k").Code, 503)
			record := tokens.keys(Key{Scope: "r", ID: "k"})[0]
			expect.Equal(t, "the claim at the master", master.Client().Exists(t.Context(), record).Val(), int64(0))
			expect.MustEqual(t, "the claim at the replica", replica.Client().Exists(t.Context(), record).Val(), int64(1))
			expect.NoError(t, "REPLICAOF NO ONE", replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
			follow(t, third, replica.Addr())
			down.Store(false)
			front.Behind(replica.Addr())
			var last string
			expect.Eventually(t, "the key is used again", func() bool {
				again := post(guarded, "pay", "Idempotency-Key: k")
				if told := again.Body.String(); told != last {
					last = told
					t.Logf("the key is not used yet: %d %s", again.Code, told)
				}
				return again.Code == 200
			})
		})
	}
}

// follow makes a server a replica of another.
func follow(t *testing.T, replica *redistest.Server, address string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(address)
	expect.NoError(t, "REPLICAOF", replica.Client().Do(t.Context(), "REPLICAOF", host, port).Err())
}
