package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/apitest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// inside is a service without a listener, for tests whose time is not real.
type inside struct{ handler http.Handler }

func (s inside) pay() answer {
	request := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(payment))
	request.Header.Set("Idempotency-Key", "slow")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, request)
	return answer{"POST /payments", w.Code, w.Header(), w.Body.Bytes()}
}

func inBubble(t *testing.T, config server.Config, test func(*testing.T, inside)) {
	synctest.Test(t, func(t *testing.T) {
		config.Store = storetest.Open(t, redisstore.Config{})
		config.Dev = true
		s := server.New(config)
		test(t, inside{apitest.Handler(t, s.Handler())})
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPaymentLongerThanItsLeaseStaysInProgress(t *testing.T) {
	inBubble(t, server.Config{PaymentDelay: 20 * time.Second, PaymentLease: 3 * time.Second}, func(t *testing.T, s inside) {
		first := make(chan answer, 1)
		go func() { first <- s.pay() }()
		for range 6 {
			time.Sleep(3 * time.Second)
			a := s.pay()
			checkProblem(t, a, wire.InProgress)
			if wait := a.header.Get("Retry-After"); wait != "2" && wait != "3" { // an extension is a second old at most
				t.Errorf("Retry-After %s of a lease of 3 s", wait)
			}
		}
		paid := <-first
		decode[wire.Payment](t, paid, 201)
		wantReplay(t, s.pay(), paid)
	})
}

func TestPaymentLongerThanARequestMayTakeIsToldAsUnknownAndDoesNotRunAgain(t *testing.T) {
	inBubble(t, server.Config{PaymentDelay: time.Minute, RequestTimeout: 5 * time.Second}, func(t *testing.T, s inside) {
		begin := time.Now()
		cut := s.pay()
		checkProblem(t, cut, wire.OutcomeUnknown)
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		wantReplay(t, s.pay(), cut)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/payments", nil))
		if ledger := decode[wire.Ledger](t, answer{"GET /payments", w.Code, w.Header(), w.Body.Bytes()}, 200); ledger.Total != 1 {
			t.Errorf("%+v", ledger)
		}
	})
}

func TestRecordedAnswerIsKeptForADay(t *testing.T) {
	inBubble(t, server.Config{}, func(t *testing.T, s inside) {
		first := s.pay()
		decode[wire.Payment](t, first, 201)
		time.Sleep(24*time.Hour - time.Second)
		wantReplay(t, s.pay(), first)
		time.Sleep(24*time.Hour + time.Second) // a replay need not prolong it
		second := s.pay()
		if decode[wire.Payment](t, second, 201); second.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%v", second.header)
		}
	})
}
