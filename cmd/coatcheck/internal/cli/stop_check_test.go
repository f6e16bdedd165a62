//go:build check

package cli

import (
	"net/http"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// With default settings, payments that take longer than the ten seconds that a stop once waited
// for.
func TestOrdinaryRestartLeavesNoPaymentInDoubt(t *testing.T) {
	t.Parallel()
	const long = 12 * time.Second
	redis := redistest.Start(t)
	begun := make(chan struct{}, 1)
	upstream := newTill(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		time.Sleep(long)
		w.WriteHeader(http.StatusCreated)
	})
	gateway := runGateway(t, upstream.URL, payRoutes, "--redis", redis.URL())
	service := serve(t, "--dev", "--redis", redis.URL(), "--payment-delay", long.String())
	paid := make(chan answer, 2)
	go func() { paid <- gateway.do("POST", "/pay/a", payment, "Idempotency-Key: a") }()
	go func() { paid <- service.do("POST", "/payments", payment, "Idempotency-Key: a") }()
	<-begun
	eventually(t, "the charge is made", func() bool { return service.ledger().Total == 1 })
	ended := make(chan int, 2)
	go func() { ended <- gateway.stop() }()
	go func() { ended <- service.stop() }()
	for range 2 {
		(<-paid).is(t, "a payment during a restart", 201)
		expect.Equal(t, "the exit code", <-ended, done)
	}
}
