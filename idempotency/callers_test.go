package idempotency

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

const severalCallers = "has come from several callers"

// A signature of AWS's kind is another one for each request, so that by the Authorization header
// each attempt is another caller, and runs. That cannot be refused, but it can be said.
func TestSignaturesThatChangeWithEachRequestAreWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Text
		tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{Logger: log.Logger()})
		h := &handler{serve: func(http.ResponseWriter, *http.Request) {}}
		guarded := tokens.Middleware(Route{})(h)
		pay := func(key, body string, n int) {
			post(guarded, body, "Idempotency-Key: "+key, fmt.Sprintf("Authorization: AWS4-HMAC-SHA256 Credential=AKID/20261128/eu/pay/aws4_request, Signature=%064d", n))
		}
		lines := func(when string, want int) {
			t.Helper()
			expect.Equal(t, "lines of the log "+when, strings.Count(log.String(), severalCallers), want)
		}
		pay("a", "12 EUR", 1)
		pay("b", "12 EUR", 2)
		pay("a", "13 EUR", 3)
		pay("a", "12 EUR", 1)
		lines("after other keys, other bodies, and a repeat of the same caller", 0)
		pay("a", "12 EUR", 4)
		lines("after the same request of another caller", 1)
		expect.Contains(t, "the line", log.String(), "scheme=AWS4-HMAC-SHA256", "principal: {jwt", "principal-headers", "route=")
		for n := range 100 {
			pay("a", "12 EUR", 10+n)
		}
		lines("after a hundred more in the same minute", 1)
		time.Sleep(time.Minute)
		pay("a", "12 EUR", 1000)
		lines("a minute later", 2)
		for _, secret := range []string{"AKID", "000001", "EUR"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log holds %q of the request:\n%s", secret, log.String())
			}
		}
		h.wantRuns(t, 105)
	})
}

// Where the scheme is not known the header can be a secret.
func TestSchemeOfAWarningIsOneThatIsKnown(t *testing.T) {
	t.Parallel()
	var log logtest.Text
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{Logger: log.Logger()})
	guarded := tokens.Middleware(Route{})(&handler{serve: func(http.ResponseWriter, *http.Request) {}})
	for _, secret := range []string{"hush-1", "hush-2 x"} {
		post(guarded, "pay", "Idempotency-Key: k", "Authorization: "+secret)
	}
	expect.Contains(t, "the log", log.String(), severalCallers, "scheme=-")
	if strings.Contains(log.String(), "hush") {
		t.Errorf("the log holds a secret:\n%s", log.String())
	}
}

// What is remembered is bounded, and the newest of it stays.
func TestRememberedCallersAreBounded(t *testing.T) {
	t.Parallel()
	c, now := newCallers(nil), time.Now()
	for n := range uint64(5 * maxCallers) {
		expect.Equal(t, "a request that comes for the first time is another caller's", c.isOther(n, "first", now), false)
	}
	if size := len(c.now) + len(c.before); size > 2*maxCallers {
		t.Errorf("%d requests are remembered, want %d at most", size, 2*maxCallers)
	}
	expect.Equal(t, "one of the newest requests is another caller's", c.isOther(4*maxCallers, "second", now), true)
}
