package workerlease_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A request that is asked again, since it is not known whether it was granted, gets what it was
// granted: it uses up no other worker id, however often it is asked.
func TestRequestWithoutAnAnswerUsesUpOneWorkerID(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{URL: redistest.Start(t).URL(), AckTimeout: 20 * time.Millisecond})
	for name, ask := range map[string]func(p *workerlease.Pools, request workerlease.Request) (int, time.Duration, error){
		"acquired": func(p *workerlease.Pools, request workerlease.Request) (int, time.Duration, error) {
			lease, err := p.Acquire(t.Context(), "acquired", request)
			return lease.WorkerID, lease.NotAfter.Sub(lease.Now), err
		},
		"held": func(p *workerlease.Pools, request workerlease.Request) (int, time.Duration, error) {
			held, err := p.Hold(t.Context(), "held", request, workerlease.HoldOptions{Wait: -1})
			if err != nil {
				return 0, 0, err
			}
			lease, _ := held.Current()
			return lease.WorkerID, lease.TTL, held.Release(t.Context(), time.Time{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
			shape := workerlease.Shape{Layout: "41/1/21"} // two worker ids
			request := workerlease.Request{Shape: shape, TTL: time.Hour}
			if name == "held" {
				request.TTL = 0
			}
			for range 4 {
				unconfirmed := request
				unconfirmed.Ack = 1
				_, _, err := ask(p, unconfirmed)
				expect.Error(t, "without the replica that confirms", err, redisstore.ErrUnknownOutcome)
			}
			other := request
			other.Identity = "other"
			id, _, err := ask(p, other)
			expect.MustEqual(t, "error of another identity", err, nil)
			expect.Equal(t, "worker id of another identity", id, 1)
			time.Sleep(10 * time.Millisecond)
			id, left, err := ask(p, request)
			expect.MustEqual(t, "error once it is confirmed", err, nil)
			expect.Equal(t, "worker id once it is confirmed", id, 0)
			if request.TTL > 0 {
				expect.Equal(t, "remaining window of a grant that was asked for again", left, request.TTL)
				_, _, err = ask(p, request)
				expect.Error(t, "when both are held", err, workerlease.ErrExhausted)
			}
		})
	}
}
