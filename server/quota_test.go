package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Tokens and guarded requests of one principal count together; what has begun is ended as ever.
func TestServiceRefusesWhatIsOverTheQuota(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, Quota: idempotency.Quota{Operations: 3}})
	const pay, ann, bob = `{"amount":5,"currency":"EUR","to":"acct_1"}`, "Authorization: ann", "Authorization: bob"
	token := must[wire.TokenIssued](t, s, 201, "POST", "/token", `{}`, ann).Token
	lease := must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", forAnHour, ann).Lease
	must[wire.Payment](t, s, 201, "POST", "/payments", pay, ann, "Idempotency-Key: a")
	for _, c := range []call{
		{method: "POST", path: "/token", body: `{}`},
		{method: "POST", path: "/payments", body: pay, header: []string{"Idempotency-Key: b"}},
	} {
		refused := s.do(t, c.method, c.path, c.body, append(c.header, ann)...)
		checkProblem(t, refused, wire.TooManyRequests)
		expect.Contains(t, "the refusal", string(refused.body), "quota")
		if refused.header.Get("Retry-After") == "" {
			t.Errorf("%v; want a Retry-After", refused)
		}
	}
	must[wire.Payment](t, s, 201, "POST", "/payments", pay, ann, "Idempotency-Key: a")
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, ann, "Lease-Token: "+lease)
	must[wire.Payment](t, s, 201, "POST", "/payments", pay, bob, "Idempotency-Key: b")
}
