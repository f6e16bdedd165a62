package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// An operation by the caller's own key goes the whole way of a token, without one being issued.
func TestOperationByTheCallersOwnKey(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		const claim = `{"key":"evt_ü 1/2","scope":"webhooks","fingerprint":"f","lease_ms":3600000,"retention_ms":864000000}`
		granted := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
		expect.Equal(t, "outcome of the first claim", granted.Outcome, "granted")
		at, mine := "/operation/"+granted.Operation, "Lease-Token: "+granted.Lease
		checkProblem(t, s.do(t, "POST", "/operation/claim", claim), api.InProgress)
		checkProblem(t, s.do(t, "POST", "/operation/claim", strings.Replace(claim, `"f"`, `"g"`, 1)), api.PayloadMismatch)
		other := must[api.Claimed](t, s, 200, "POST", "/operation/claim", strings.Replace(claim, "webhooks", "others", 1))
		if other.Operation == granted.Operation {
			t.Error("the same key in another scope is the same operation, want another")
		}
		must[api.Extended](t, s, 200, "POST", at+"/extend", `{"lease_ms":7200000}`, mine)
		checkProblem(t, s.do(t, "DELETE", at, ""), api.AttemptRunning)
		checkProblem(t, s.do(t, "POST", at+"/complete", `{"status":200}`, "Lease-Token: "+other.Lease), api.Superseded)
		must[nothing](t, s, 204, "POST", at+"/complete", `{"status":201,"headers":{"location":"/bills/1"},"body_base64":"AQ=="}`, mine)
		shown := must[api.Operation](t, s, 200, "GET", at, "")
		expect.Equal(t, "the operation", []string{string(shown.State), shown.Route}, []string{"completed", "webhooks"})
		if left := time.Until(shown.ExpiresAt.Time); left < 239*time.Hour {
			t.Errorf("the record ends in %v, want ten days after the answer", left)
		}
		replay := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
		expect.Equal(t, "a claim of what is completed", replay, api.Claimed{
			Outcome: "replay", Operation: granted.Operation, Response: &api.Answer{Status: 201, Headers: map[string]string{"Location": "/bills/1"}, Body: []byte{1}},
		})
		must[nothing](t, s, 204, "DELETE", at, "")
		must[nothing](t, s, 204, "DELETE", at, "")
		again := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
		if again.Outcome != "granted" || again.Fence <= granted.Fence {
			t.Errorf("a claim after its answer was forgotten: got %+v, want a grant with a larger fence than %d", again, granted.Fence)
		}
		must[nothing](t, s, 204, "POST", at+"/release", "", "Lease-Token: "+again.Lease)
	})
}

// What a program on the same Redis does under a key is the operation that is claimed over HTTP.
func TestOwnKeyIsTheOperationOfTheGoPackage(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		tokens := idempotency.New(store, idempotency.Config{})
		key := idempotency.Key{Scope: "webhooks", ID: "evt_1"}
		_, err := tokens.Do(t.Context(), key, idempotency.ClaimOptions{Fingerprint: "f"}, func(context.Context, *idempotency.Attempt) ([]byte, error) { return []byte{1}, nil })
		expect.Error(t, "Do", err, nil)
		got := must[api.Claimed](t, s, 200, "POST", "/operation/claim", `{"key":"evt_1","scope":"webhooks","fingerprint":"f"}`)
		expect.Equal(t, "a claim after Do", got, api.Claimed{Outcome: "replay", Operation: key.Operation(), Response: &api.Answer{Status: 200, Body: []byte{1}}}, cmpopts.EquateEmpty())
		expect.Equal(t, "the operation's route", must[api.Operation](t, s, 200, "GET", "/operation/"+key.Operation(), "").Route, "webhooks")
	})
}

// A key of nobody in particular is one that others may have, too: the log says so once a minute.
func TestOwnKeyWithoutACallerIsWarnedOf(t *testing.T) {
	t.Parallel()
	const line = "all such callers are one"
	for what, config := range map[string]server.Config{"by Authorization": {}, "as is meant": {OneCaller: true}} {
		config.Store = storetest.Open(t, redisstore.Config{})
		s := serve(t, config)
		s.do(t, "POST", "/operation/claim", `{"key":"secret","scope":"jobs","fingerprint":"f"}`, "Authorization: Bearer ann")
		s.do(t, "POST", "/token", "{}")
		s.do(t, "POST", "/incr/a", "")
		expect.Equal(t, what+": lines of callers with a name, and without a key", strings.Count(s.log.String(), line), 0)
		for range 2 {
			s.do(t, "POST", "/operation/claim", `{"key":"secret","scope":"jobs","fingerprint":"f"}`)
			s.do(t, "POST", "/incr/a", "", "Idempotency-Key: secret")
		}
		expect.Equal(t, what+": lines within a minute", strings.Count(s.log.String(), line), map[bool]int{false: 1}[config.OneCaller])
		expect.Equal(t, what+": the log has the key", strings.Contains(s.log.String(), "secret"), false)
	}
}

// One that fell silent is in doubt under its name, is settled there, and is not forgotten before.
func TestOwnKeyInDoubtIsSettled(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		const claim = `{"key":"nightly","scope":"jobs","fingerprint":"f","lease_ms":100}`
		granted := must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim)
		at := "/operation/" + granted.Operation
		expect.Eventually(t, "the lease lapses", func() bool { return must[api.Operation](t, s, 200, "GET", at, "").State == "in-doubt" })
		for _, call := range [][2]string{{"POST", "/operation/claim"}, {"DELETE", at}} {
			body := ""
			if call[0] == "POST" {
				body = claim
			}
			problem := checkProblem(t, s.do(t, call[0], call[1], body), api.IdempotencyUnknown)
			expect.Equal(t, call[0]+": operation", problem.Operation, granted.Operation)
		}
		listed := must[api.Operations](t, s, 200, "GET", "/operation?state=in-doubt&prefix=jobs", "")
		expect.MustEqual(t, "operations in doubt of the scope", len(listed.Operations), 1)
		must[nothing](t, s, 204, "POST", at+"/settle", `{"outcome":"completed","status":200}`)
		expect.Equal(t, "a claim after it", must[api.Claimed](t, s, 200, "POST", "/operation/claim", claim), api.Claimed{
			Outcome: "replay", Operation: granted.Operation, Response: &api.Answer{Status: 200},
		}, cmpopts.EquateEmpty())
	})
}

func TestKeysThatCanBeNoneAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	for field, bodies := range map[string][]string{
		"key":          {`{"fingerprint":"f"}`, `{"key":"a\u0000b","fingerprint":"f"}`, `{"key":"a\ud83d","fingerprint":"f"}`, `{"key":"` + strings.Repeat("ü", 513) + `","fingerprint":"f"}`},
		"scope":        {`{"key":"k","scope":"a b","fingerprint":"f"}`},
		"fingerprint":  {`{"key":"k"}`},
		"retention_ms": {`{"key":"k","fingerprint":"f","retention_ms":999}`, `{"key":"k","fingerprint":"f","retention_ms":34560000001}`},
		"policy":       {`{"key":"k","fingerprint":"f","policy":"x"}`},
	} {
		for _, body := range bodies {
			wantField(t, s.do(t, "POST", "/operation/claim", body), api.InvalidRequest, field, "")
		}
	}
	text, err := json.Marshal(map[string]string{"key": strings.Repeat("ü", 512), "fingerprint": "f"})
	expect.NoError(t, "writing a claim", err)
	must[api.Claimed](t, s, 200, "POST", "/operation/claim", string(text))
}
