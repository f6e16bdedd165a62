package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/issuer"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Without access and without a setting, two callers with different credentials are two principals.
func TestKeysOfTwoPrincipalsNeverMeet(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
	const a, b = "Authorization: Bearer a", "Authorization: Bearer b"
	const once = "Idempotency-Key: once"

	incr := func(header ...string) int64 {
		t.Helper()
		return must[api.Incremented](t, s, 200, "GET", "/incr/orders", "", header...).Value
	}
	first, other, anonymous := incr(once, a), incr(once, b), incr(once)
	expect.Equal(t, "GET /incr/orders with one key by a, b and a caller without credential", []int64{first, other, anonymous}, []int64{1, 2, 3})
	expect.Equal(t, "the repeat by a", incr(once, a), first)
	expect.Equal(t, "the repeat by b", incr(once, b), other)

	pay := func(header ...string) api.Payment {
		t.Helper()
		return must[api.Payment](t, s, 201, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, header...)
	}
	mine, theirs := pay(once, a), pay(once, b)
	if mine.ID == theirs.ID {
		t.Errorf("POST /payments with one key: b got payment %s of a, want one of its own", theirs.ID)
	}
	expect.Equal(t, "the repeat of a's payment", pay(once, a).ID, mine.ID)

	token := "Idempotency-Token: " + must[api.TokenIssued](t, s, 201, "POST", "/token", "", a).Token
	checkProblem(t, s.do(t, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, token, b), "idempotency-token-unknown")
	pay(token, a)
}

// By its verified token a caller stays the same when the token is renewed, wherever the service
// asks who it is; where it does not, no token is needed.
func TestCallersByTheirVerifiedTokens(t *testing.T) {
	t.Parallel()
	is, other := issuer.New(t), issuer.New(t)
	callers, err := jwtprincipal.New(jwtprincipal.Config{JWKS: is.URL})
	expect.Error(t, "New", err, nil)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, Principal: callers.Principal})
	as := func(token string) string { return "Authorization: Bearer " + token }
	const once, payment = "Idempotency-Key: once", `{"amount":5,"currency":"EUR","to":"acct_1"}`

	token := must[api.TokenIssued](t, s, 201, "POST", "/token", "", as(is.Token("ann"))).Token
	header := "Idempotency-Token: " + token
	first := must[api.Payment](t, s, 201, "POST", "/payments", payment, header, as(is.Token("ann")))
	again := must[api.Payment](t, s, 201, "POST", "/payments", payment, header, as(is.Token("ann")))
	expect.Equal(t, "the payment repeated with a renewed token", again, first)
	checkProblem(t, s.do(t, "POST", "/payments", payment, header, as(is.Token("bob"))), "idempotency-token-unknown")
	one := must[api.Incremented](t, s, 200, "GET", "/incr/orders", "", once, as(is.Token("ann")))
	expect.Equal(t, "the number repeated with a renewed token", must[api.Incremented](t, s, 200, "GET", "/incr/orders", "", once, as(is.Token("ann"))), one)

	const own = `{"key":"evt_1","fingerprint":"x"}`
	must[api.Claimed](t, s, 200, "POST", "/operation/claim", own, as(is.Token("ann")))
	checkProblem(t, s.do(t, "POST", "/operation/claim", own, as(is.Token("ann"))), "idempotency-in-progress")
	must[api.Claimed](t, s, 200, "POST", "/operation/claim", own, as(is.Token("bob")))

	for _, bad := range []string{as(other.Token("ann")), "X-User-Id: ann"} {
		for _, ask := range [][]string{
			{"POST", "/token", ""}, {"GET", "/token/" + token, ""}, {"POST", "/token/" + token + "/claim", `{"fingerprint":"x"}`},
			{"POST", "/operation/claim", own},
			{"POST", "/payments", payment, header}, {"POST", "/payments", payment, once}, {"GET", "/incr/orders", "", once},
		} {
			a := s.do(t, ask[0], ask[1], ask[2], append(ask[3:], bad)...)
			checkProblem(t, a, "unauthorized")
			a.wantHeader(t, "WWW-Authenticate", `Bearer realm="coatcheck"`)
		}
	}
	must[api.Incremented](t, s, 200, "GET", "/incr/orders", "")
	expect.Equal(t, "payments in the ledger", must[api.Ledger](t, s, 200, "GET", "/payments", "").Total, 1)
}
