package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/issuer"
)

// byToken is a routes file whose callers are those of an issuer's tokens.
func byToken(jwks string) string {
	return fmt.Sprintf(`routes: [{match: POST /payments, principal: {jwt: {jwks: %q, issuer: "https://id.example/", audience: payments}}}]`, jwks)
}

// payAs pays with a caller's token, always under the same key.
func (r *rig) payAs(token string) answer {
	r.t.Helper()
	return r.do("POST", "/payments", `{"amount":1}`, "Idempotency-Key: k", "Authorization: Bearer "+token)
}

func TestRetryWithARenewedTokenIsAnsweredAndNotRunAgain(t *testing.T) {
	is, upstream := issuer.New(t), newShop(t, nil)
	r := start(t, upstream.URL, byToken(is.URL))
	r.wantPaid(r.payAs(is.Token("anna-lena")), "paid 1", false)
	r.wantPaid(r.payAs(is.Token("anna-lena")), "paid 1", true)
	is.Rotate("k2")
	r.wantPaid(r.payAs(is.Token("bob")), "paid 2", false)
	upstream.wantPaid(t, 2)
	if log := r.log.String(); strings.Contains(log, "anna-lena") || strings.Contains(log, ".eyJ") {
		t.Errorf("the log holds a token, or a claim of one:\n%s", log)
	}
}

// A request that is refused for its caller leaves the key as it was, and reaches nothing.
func TestTokenThatDoesNotVerifyIs401AndLosesNothing(t *testing.T) {
	is, other, upstream := issuer.New(t), issuer.New(t), newShop(t, nil)
	r := start(t, upstream.URL, byToken(is.URL))
	expired := is.Token("ann", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})
	for _, paid := range []bool{false, true} {
		for what, headers := range map[string][]string{
			"no token":              nil,
			"a forged token":        {"Authorization: Bearer " + other.Token("ann")},
			"an expired token":      {"Authorization: Bearer " + expired},
			"another credential":    {"Authorization: Basic YTpi", "X-User-Id: ann"},
			"a credential as well":  {"Authorization: Bearer " + is.Token("ann"), "Authorization: Basic YTpi"},
			"a token for the shop":  {"Authorization: Bearer " + is.Token("ann", map[string]any{"aud": "shop"})},
			"a token of two others": {"Authorization: Bearer " + is.Token("ann", map[string]any{"iss": "https://x.example"})},
		} {
			a := r.do("POST", "/payments", `{"amount":1}`, append(headers, "Idempotency-Key: k")...)
			r.wantCode(a, api.Unauthorized)
			r.wantHeader(a, "WWW-Authenticate", `Bearer realm="coatcheck"`)
			expect.Equal(t, what+": the field", a.problem().Field, "Authorization")
		}
		upstream.wantPaid(t, map[bool]int64{true: 1}[paid])
		r.wantPaid(r.payAs(is.Token("ann")), "paid 1", paid)
	}
	expect.Eventually(t, "outcome=unauthorized in the log", func() bool { return logged(r, "outcome=unauthorized") })
	expect.Contains(t, "the log", r.log.String(), "code=unauthorized")
}

// Whether a key is asked for, is answered before who asks; and what is not guarded needs no token.
func TestTokenIsAskedForWithAKeyOnly(t *testing.T) {
	is, upstream := issuer.New(t), newShop(t, nil)
	r := start(t, upstream.URL, strings.Replace(byToken(is.URL), "POST /payments,", "POST /payments, required: false,", 1))
	r.wantPaid(r.do("POST", "/payments", "x"), "paid 1", false)
	r.wantCode(r.pay("k"), api.Unauthorized)
	r.write(byToken(is.URL))
	expect.Error(t, "Reload", r.g.Reload(), nil)
	r.wantCode(r.do("POST", "/payments", "x"), api.KeyMissing)
	upstream.wantPaid(t, 1)
}

// While the keys cannot be fetched nothing is known of a caller: no 401, for which a client would
// ask its user to sign in, and no other principal. Known keys go on to count.
func TestIssuerThatIsAway(t *testing.T) {
	is, upstream := issuer.New(t), newShop(t, nil)
	is.Away.Store(true)
	r := start(t, upstream.URL, byToken(is.URL))
	expect.Eventually(t, "the log says it before a request comes", func() bool { return logged(r, "the keys of bearer tokens cannot be read") })
	a := r.payAs(is.Token("ann"))
	r.wantCode(a, api.StoreUnavailable)
	r.wantHeader(a, "Retry-After", "1")
	expect.Contains(t, "the detail", a.problem().Detail, "Nothing was done", "bearer tokens")
	expect.Eventually(t, "outcome=no_keys in the log", func() bool { return logged(r, "outcome=no_keys") })
	upstream.wantPaid(t, 0)
	is.Away.Store(false)
	expect.Eventually(t, "the keys are fetched", func() bool { return r.payAs(is.Token("ann")).status == 201 })
	is.Away.Store(true)
	r.wantPaid(r.payAs(is.Token("ann")), "paid 1", true)
	upstream.wantPaid(t, 1)
}

// Routes that want the same share their keys, and a changed file leaves them.
func TestKeysOutliveAChangedFile(t *testing.T) {
	is, upstream := issuer.New(t), newShop(t, nil)
	r := start(t, upstream.URL, byToken(is.URL))
	r.wantPaid(r.payAs(is.Token("ann")), "paid 1", false)
	r.write(strings.Replace(byToken(is.URL), "routes: [", `routes: [{match: POST /orders, keys: orders, principal: {jwt: {jwks: "`+is.URL+`", issuer: "https://id.example/", audience: payments}}}, `, 1))
	expect.Error(t, "Reload", r.g.Reload(), nil)
	r.wantPaid(r.payAs(is.Token("ann")), "paid 1", true)
	r.wantStatus(r.do("POST", "/orders", "x", "Idempotency-Key: k", "Authorization: Bearer "+is.Token("ann")), 201)
	expect.Equal(t, "how often the keys were fetched", is.Asked.Load(), 1)
	r.write(byToken("/nowhere/jwks.json"))
	expect.Contains(t, "Reload with a file of keys that is missing", fmt.Sprint(r.g.Reload()), "line 1: principal: jwt: ", "no such file")
	r.wantPaid(r.payAs(is.Token("ann")), "paid 1", true)
}

func TestPrincipalsOfARoutesFileWithFaults(t *testing.T) {
	for text, want := range map[string]string{
		"jwt":                                   "principal: none, or a map",
		"{}":                                    "principal: none, or a map",
		"{header: X}":                           "principal: unknown field; here may be ask, cookie, jwt",
		"{jwt: true}":                           "principal: jwt: a map of fields belongs here: algorithms, audience",
		"{jwt: {issuer: x}}":                    "principal: jwt: jwks: missing",
		"{jwt: {jwks: 'ftp://x'}}":              "jwks: not a URL",
		"{jwt: {jwks: f, claim: 1}}":            "principal: jwt: claim: a text belongs here",
		"{jwt: {jwks: f, algorithms: [HS256]}}": `algorithms: "HS256": one of RS256`,
		"{jwt: {jwks: f, algorithms: []}}":      "algorithms: a list of 1 to 100 entries",
		"{jwt: {jwks: f, leeway_ms: 300001}}":   "leeway_ms: a whole number from 1000 to 300000",
		"{jwt: {jwks: f, secret: hush}}":        "principal: jwt: unknown field",
		"{jwt: {jwks: f}, cookie: c}":           "principal: none, or a map with one of jwt, cookie and ask",
		"{cookie: []}":                          "principal: cookie: a list of 1 to 100 entries",
		"{ask: http://h}":                       "principal: ask: a map of fields belongs here: header, url",
		"{ask: {url: 'ftp://h', header: X}}":    "principal: ask: url: a URL such as",
		"{ask: {url: 'http://u:p@h'}}":          "without a password",
		"{ask: {url: 'http://h', header: a b}}": "principal: ask: header: the name of a header",
	} {
		_, err := ParseRoutes([]byte("routes:\n  - match: /a\n    principal: " + text))
		expect.Contains(t, "ParseRoutes with principal: "+text, fmt.Sprint(err), "line 3: ", want)
	}
}
