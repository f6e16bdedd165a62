package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// inside is a service without a listener, for tests whose time is not real.
type inside struct{ handler http.Handler }

func (s inside) ask(method, path, body string, header ...string) answer {
	request := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, request)
	return answer{call{method: method, path: path, header: header, body: body}.String(), w.Code, w.Header(), w.Body.Bytes()}
}

func (s inside) pay() answer { return s.ask("POST", "/payments", payment, "Idempotency-Key: slow") }

func inBubble(t *testing.T, config server.Config, test func(*testing.T, inside)) {
	synctest.Test(t, func(t *testing.T) {
		config.Store = storetest.Open(t, redisstore.Config{})
		config.Dev = true
		s := server.New(config)
		test(t, inside{apitest.Handler(t, s.Handler())})
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("closing the service: %v", err)
		}
	})
}

func TestPaymentLongerThanItsLeaseStaysInProgress(t *testing.T) {
	t.Parallel()
	inBubble(t, server.Config{PaymentDelay: 20 * time.Second, PaymentLease: 3 * time.Second}, func(t *testing.T, s inside) {
		first := make(chan answer, 1)
		go func() { first <- s.pay() }()
		for range 6 {
			time.Sleep(3 * time.Second)
			a := s.pay()
			checkProblem(t, a, api.InProgress)
			a.wantRetryAfter(t, 2, 3) // an extension of 3 s is a second old at most
		}
		paid := <-first
		decode[api.Payment](t, paid, 201)
		wantReplay(t, s.pay(), paid)
	})
}

func TestPaymentLongerThanARequestMayTakeIsToldAsUnknownAndDoesNotRunAgain(t *testing.T) {
	inBubble(t, server.Config{PaymentDelay: time.Minute, RequestTimeout: 5 * time.Second}, func(t *testing.T, s inside) {
		begin := time.Now()
		cut := s.pay()
		checkProblem(t, cut, api.OutcomeUnknown)
		expect.Equal(t, "how long POST /payments took", time.Since(begin), 5*time.Second)
		// and not the same 503 all day, which says "ask again"
		checkProblem(t, s.pay(), api.IdempotencyUnknown)
		ledger := decode[api.Ledger](t, s.ask("GET", "/payments", ""), 200)
		expect.Equal(t, "GET /payments: total", ledger.Total, 1)
	})
}
