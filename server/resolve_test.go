package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What became of an operation is found out by one caller at a time, who settles it with its lease.
func TestCallerResolvesItsOwnOperation(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		for outcome, body := range map[string]string{"completed": `{"outcome":"completed","status":201}`, "not-begun": `{"outcome":"not-begun"}`} {
			claim := `{"key":"` + outcome + `","scope":"jobs","fingerprint":"f","lease_ms":100}`
			granted := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
			at := "/operation/" + granted.Operation
			expect.Eventually(t, "the lease lapses", func() bool { return must[api.Operation](t, s, 200, "GET", at, "").State == "in-doubt" })

			mine := "Lease-Token: 0123456789abcdefghijkl"
			resolving := must[api.Resolving](t, s, 200, "POST", at+"/resolve", `{"lease_ms":300000}`, mine)
			expect.Equal(t, "the fence to close", resolving.Fence, granted.Fence)
			expect.Equal(t, "how often it was asked", resolving.Asked, 1)
			again := must[api.Resolving](t, s, 200, "POST", at+"/resolve", `{"lease_ms":300000}`, mine)
			expect.Equal(t, "the lease of a repeat, and how often it was asked", []any{again.Lease, again.Asked}, []any{resolving.Lease, 1})
			other := s.do(t, "POST", at+"/resolve", "")
			checkProblem(t, other, api.AttemptRunning)
			expect.Equal(t, "whether another one is told when to ask", other.header.Get("Retry-After") != "", true)
			checkProblem(t, s.do(t, "POST", "/operation/claim", claim), api.InProgress)
			checkProblem(t, s.do(t, "POST", at+"/complete", `{"status":200}`, "Lease-Token: "+granted.Lease), api.Superseded)
			checkProblem(t, s.do(t, "POST", at+"/settle", body), api.AttemptRunning) // an operator
			checkProblem(t, s.do(t, "POST", at+"/settle", body, "Lease-Token: another-one-than-it-is"), api.Superseded)
			refused := checkProblem(t, s.do(t, "POST", at+"/settle", `{"outcome":"refused"}`, mine), api.InvalidRequest)
			expect.Equal(t, "field of what a resolver may not say", refused.Field, "outcome")
			for range 2 {
				must[nothing](t, s, 204, "POST", at+"/settle", body, mine)
			}
			checkProblem(t, s.do(t, "POST", at+"/resolve", `{"lease_ms":0}`, mine), api.NotInDoubt)
			next := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
			expect.Equal(t, "a claim after "+outcome, next.Outcome, map[string]string{"completed": "replay", "not-begun": "granted"}[outcome])
		}
	})
}

func TestResolverThatFindsNothingOutSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	granted := must[api.Claimed](t, s, 200, "POST", "/operation/claim", `{"key":"k","fingerprint":"f","lease_ms":100}`)
	at := "/operation/" + granted.Operation
	var mine api.Resolving
	expect.Eventually(t, "the lease lapses", func() bool {
		a := s.do(t, "POST", at+"/resolve", `{"lease_ms":300000}`)
		if a.status == 200 {
			mine = decode[api.Resolving](t, a, 200)
		}
		return a.status == 200
	})
	must[nothing](t, s, 204, "POST", at+"/resolve", `{"lease_ms":0}`, "Lease-Token: "+mine.Lease)
	checkProblem(t, s.do(t, "POST", "/operation/claim", `{"key":"k","fingerprint":"f"}`), api.IdempotencyUnknown)
	wait := checkProblem(t, s.do(t, "POST", at+"/resolve", ""), api.AttemptRunning)
	expect.Equal(t, "whether it may be asked again", wait.Retryable, true)
	expect.Eventually(t, "another one may ask", func() bool { return s.do(t, "POST", at+"/resolve", "").status == 200 })
	checkProblem(t, s.do(t, "POST", at+"/resolve", `{"lease_ms":0}`), api.InvalidRequest)
	// an operator would have to wait for it
	checkProblem(t, s.do(t, "POST", at+"/resolve", `{"lease_ms":300001}`), api.InvalidRequest)
}

func TestOperationsOfOthersAreNotResolved(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	granted := decode[api.Claimed](t, g.as(t, "use", "POST", "/operation/claim", `{"key":"k","fingerprint":"f","lease_ms":100}`), 200)
	at := "/operation/" + granted.Operation
	expect.Eventually(t, "the lease lapses", func() bool { return decode[api.Operation](t, g.as(t, "use", "GET", at, ""), 200).State == "in-doubt" })
	checkProblem(t, g.as(t, "read", "POST", at+"/resolve", ""), api.Forbidden)
	checkProblem(t, g.as(t, "use", "POST", at+"/settle", `{"outcome":"not-begun"}`), api.Forbidden)
	lease := "Lease-Token: made-up-by-another-one"
	for _, verb := range []string{"/resolve", "/settle"} {
		checkProblem(t, g.as(t, "other", "POST", at+verb, map[string]string{"/settle": `{"outcome":"not-begun"}`}[verb], lease), api.OperationUnknown)
	}
	resolving := decode[api.Resolving](t, g.as(t, "use", "POST", at+"/resolve", ""), 200)
	expect.Equal(t, "whether there is a lease", resolving.Lease != "", true)
	checkProblem(t, g.as(t, "admin", "POST", "/operation/"+granted.Operation[1:]+"x/resolve", ""), api.OperationUnknown)
}
