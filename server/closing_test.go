package server

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestStopWaitsAsLongAsARequestMayTake(t *testing.T) {
	expect.Equal(t, "the stop timeout", Config{RequestTimeout: 40 * time.Second}.withDefaults().StopTimeout, 45*time.Second)
	expect.Equal(t, "the stop timeout that is set", Config{StopTimeout: time.Second}.withDefaults().StopTimeout, time.Second)
	expect.Equal(t, "the stop timeout of requests that may take for ever", Config{RequestTimeout: math.MaxInt64}.withDefaults().StopTimeout, 24*time.Hour+5*time.Second)
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
	s.draining.Closing.Store(true)
	refused := pay("1")
	expect.Equal(t, "a payment at a stop", refused.Code, 503)
	expect.Contains(t, "a payment at a stop", refused.Body.String(), string(api.StoreUnavailable), "stopping")
	s.draining.Closing.Store(false)
	expect.Equal(t, "another payment with its key", pay("2").Code, 201)
}

func TestRemoteClaimAtAStopIsRefusedAndClaimsNothing(t *testing.T) {
	t.Parallel()
	s := New(Config{Store: storetest.Open(t, redisstore.Config{})})
	defer func() { expect.Error(t, "Close", s.Close(t.Context()), nil) }()
	ask := func(method, path, body string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host = "localhost"
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	issue := func() (path string) {
		w := ask("POST", "/token", "")
		expect.MustEqual(t, "POST /token", w.Code, 201)
		return w.Header().Get("Location")
	}
	begun, fresh := issue(), issue()
	mine, other := secret.New(), secret.New()
	claim := func(path, fingerprint, lease string) *httptest.ResponseRecorder {
		return ask("POST", path+"/claim", `{"fingerprint":"`+fingerprint+`","lease_ms":3600000}`, "Lease-Token: "+lease)
	}
	expect.Equal(t, "a claim before the stop", claim(begun, "f", mine).Code, 200)

	s.draining.Closing.Store(true)
	for _, path := range []string{fresh, begun} {
		refused := claim(path, "f", other)
		expect.Equal(t, "a claim at a stop", refused.Code, 503)
		expect.Contains(t, "a claim at a stop", refused.Body.String(), string(api.StoreUnavailable), "stopping", `"retryable":true`)
		expect.Equal(t, "Retry-After of a claim at a stop", refused.Header().Get("Retry-After"), "1")
	}
	expect.Contains(t, "state of the token that was asked for at the stop", ask("GET", fresh, "").Body.String(), `"state":"issued"`, `"attempts":0`)
	// what has begun can end
	lease := "Lease-Token: " + mine
	expect.Equal(t, "a heartbeat at a stop", ask("POST", begun+"/extend", `{}`, lease).Code, 200)
	expect.Equal(t, "an answer at a stop", ask("POST", begun+"/complete", `{"status":201}`, lease).Code, 204)

	s.draining.Closing.Store(false)
	expect.Equal(t, "a claim of the same token for another payload, elsewhere", claim(fresh, "another", other).Code, 200)
}
