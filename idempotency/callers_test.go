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

const nameless = "all such callers are one"

// Without a name all callers are one, and share the answers of a key. The log says so where that is
// not what the configuration wants.
func TestRequestWithAKeyAndWithoutACallerIsWarnedOf(t *testing.T) {
	named := func(*http.Request) (string, error) { return "ann", nil }
	for what, row := range map[string]struct {
		config Config
		route  Route
		header string
		lines  int
	}{
		"by Authorization":       {Config{}, Route{Name: "pay"}, "Idempotency-Key: secret", 1},
		"with the key in a body": {Config{}, Route{Name: "pay", KeyFromBody: []string{"/id"}}, "X: y", 1},
		"by a header":            {Config{Principal: HeaderPrincipal("X-User")}, Route{Name: "pay"}, "Idempotency-Key: secret", 1},
		"as is meant":            {Config{Principal: HeaderPrincipal(), OneCaller: true}, Route{}, "Idempotency-Key: secret", 0},
		"with a name":            {Config{Principal: named}, Route{}, "Idempotency-Key: secret", 0},
		"with a route's name":    {Config{}, Route{Principal: named}, "Idempotency-Key: secret", 0},
		"with a credential":      {Config{}, Route{}, "Authorization: Bearer secret\nIdempotency-Key: secret", 0},
		"without a key":          {Config{}, Route{Optional: true}, "X: y", 0},
		"with a token":           {Config{}, Route{}, "Idempotency-Token: secret", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Text
			row.config.Logger = log.Logger()
			tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), row.config)
			guarded := tokens.Middleware(row.route)(&handler{serve: func(http.ResponseWriter, *http.Request) {}})
			for _, wait := range []time.Duration{30 * time.Second, 29 * time.Second, time.Second} {
				post(guarded, `{"id":"secret"}`, strings.Split(row.header, "\n")...)
				expect.Equal(t, what+": lines within a minute", strings.Count(log.String(), nameless), row.lines)
				time.Sleep(wait)
			}
			post(guarded, `{"id":"secret"}`, strings.Split(row.header, "\n")...)
			expect.Equal(t, what+": lines after a minute", strings.Count(log.String(), nameless), 2*row.lines)
			expect.Equal(t, what+": the log has the key", strings.Contains(log.String(), "secret"), false)
			if row.lines > 0 {
				expect.Contains(t, "the log", log.String(), "level=WARN", "route=pay", "principal-headers", "Config.OneCaller")
			}
		})
	}
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
	c, now := newCallers(nil, false), time.Now()
	for n := range uint64(5 * maxCallers) {
		expect.Equal(t, "a request that comes for the first time is another caller's", c.isOther(n, "first", now), false)
	}
	if size := len(c.now) + len(c.before); size > 2*maxCallers {
		t.Errorf("%d requests are remembered, want %d at most", size, 2*maxCallers)
	}
	expect.Equal(t, "one of the newest requests is another caller's", c.isOther(4*maxCallers, "second", now), true)
}
