package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestStopWaitsAsLongAsARequestMayTake(t *testing.T) {
	expect.Equal(t, "the stop timeout", Config{RequestTimeout: 40 * time.Second}.withDefaults().StopTimeout, 45*time.Second)
	expect.Equal(t, "the stop timeout that is set", Config{StopTimeout: time.Second}.withDefaults().StopTimeout, time.Second)
}

func TestOperationAtAStopIsRefusedAndClaimsNothing(t *testing.T) {
	s := New(Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
	defer func() { expect.Error(t, "Close", s.Close(t.Context()), nil) }()
	pay := func(amount string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":`+amount+`,"currency":"EUR","to":"acct_1"}`))
		r.Host = "localhost"
		r.Header.Set("Idempotency-Key", "a")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	s.closing.Store(true)
	refused := pay("1")
	expect.Equal(t, "a payment at a stop", refused.Code, 503)
	expect.Contains(t, "a payment at a stop", refused.Body.String(), string(wire.StoreUnavailable), "stopping")
	s.closing.Store(false)
	expect.Equal(t, "another payment with its key", pay("2").Code, 201)
}
