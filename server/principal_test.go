package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
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
		return must[wire.Incremented](t, s, 200, "GET", "/incr/orders", "", header...).Value
	}
	first, other, anonymous := incr(once, a), incr(once, b), incr(once)
	expect.Equal(t, "GET /incr/orders with one key by a, b and a caller without credential", []int64{first, other, anonymous}, []int64{1, 2, 3})
	expect.Equal(t, "the repeat by a", incr(once, a), first)
	expect.Equal(t, "the repeat by b", incr(once, b), other)

	pay := func(header ...string) wire.Payment {
		t.Helper()
		return must[wire.Payment](t, s, 201, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, header...)
	}
	mine, theirs := pay(once, a), pay(once, b)
	if mine.ID == theirs.ID {
		t.Errorf("POST /payments with one key: b got payment %s of a, want one of its own", theirs.ID)
	}
	expect.Equal(t, "the repeat of a's payment", pay(once, a).ID, mine.ID)

	token := "Idempotency-Token: " + must[wire.TokenIssued](t, s, 201, "POST", "/token", "", a).Token
	checkProblem(t, s.do(t, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, token, b), "idempotency-token-unknown")
	pay(token, a)
}
