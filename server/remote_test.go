package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestRemoteProtocolOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		t.Run("claim, extend, complete, replay", s.remoteRound)
		t.Run("a claim in progress is told with its wait", s.remoteBusy)
		t.Run("a claim given back can be taken again", s.remoteRelease)
		t.Run("a claim whose reply was lost can be asked for again", s.remoteAgain)
		t.Run("a name in place of the secret is refused", s.remoteNamed)
		t.Run("only the owner may complete, extend or release", s.remoteOwner)
		t.Run("a silent attempt under hold stays in doubt until its owner comes back", s.remoteDoubt)
		t.Run("a silent attempt under takeover is superseded", s.remoteTakeover)
		t.Run("answers of every size and status are kept", s.remoteAnswers)
	})
}

func (s *service) remoteRound(t *testing.T) {
	token := s.issue(t, `{"scope":"billing","ttl_ms":7200000}`)
	a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":3600000,"policy":"hold"}`)
	granted := decode[api.Claimed](t, a, 200)
	a.wantHeader(t, "Cache-Control", "no-store")
	expect.Equal(t, a.asked, granted, api.Claimed{Outcome: "granted", Lease: granted.Lease, Fence: granted.Fence, Attempt: 1, LeaseUntil: granted.LeaseUntil})
	if granted.Fence < 1 {
		t.Errorf("%s: got fence %d, want 1 or more", a.asked, granted.Fence)
	}
	status := must[api.TokenStatus](t, s, 200, "GET", "/token/"+token, "")
	expect.Equal(t, "GET /token/"+token+" after its claim", status, api.TokenStatus{
		State: "claimed", ExpiresAt: status.ExpiresAt, Attempts: 1, Fence: granted.Fence, Scope: "billing", LeaseUntil: granted.LeaseUntil,
	})
	mine := "Lease-Token: " + granted.Lease
	must[api.Extended](t, s, 200, "POST", "/token/"+token+"/extend", "", mine)
	extended := must[api.Extended](t, s, 200, "POST", "/token/"+token+"/extend", `{"lease_ms":7200000}`, mine)
	if !extended.LeaseUntil.After(granted.LeaseUntil.Time) {
		t.Errorf("POST /token/%s/extend: got a lease until %v, want it to end after %v", token, extended.LeaseUntil, granted.LeaseUntil)
	}

	const done = `{"status":201,"headers":{"location":"/bills/1","Set-Cookie":"session=secret","Content-Length":"3"},"body_base64":"AP8K"}`
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", done, mine)
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", done, mine)
	// harmless: the first answer stays
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":500}`, mine)
	for range 2 {
		replay := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
		expect.Equal(t, "a claim of what is completed", replay, api.Claimed{
			Outcome: "replay", Attempt: replay.Attempt,
			Response: &api.Answer{Status: 201, Headers: map[string]string{"Location": "/bills/1"}, Body: []byte("\x00\xff\n")},
		})
	}
	expect.Equal(t, "the token: state", s.state(t, token), "completed")
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"g"}`), api.PayloadMismatch)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/extend", "", mine), api.Superseded)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/release", "", mine), api.Superseded)
}

func (s *service) remoteBusy(t *testing.T) {
	token := s.issue(t, "")
	s.claim(t, token, forAnHour)
	a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	wantSee(t, a, api.InProgress, "/token/"+token)
	a.wantRetryAfter(t, 1, 3600)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"g"}`), api.PayloadMismatch)
}

func (s *service) remoteRelease(t *testing.T) {
	token := s.issue(t, "")
	first := s.claim(t, token, forAnHour)
	for range 2 { // a repeat is harmless
		must[nothing](t, s, 204, "POST", "/token/"+token+"/release", "", "Lease-Token: "+first.Lease)
	}
	expect.Equal(t, "the token after its claim was given back: state", s.state(t, token), "issued")
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+first.Lease), api.Superseded)
	second := s.claim(t, token, `{"fingerprint":"another","lease_ms":3600000}`)
	expect.Equal(t, "the claim after a release: attempt", second.Attempt, 2)
	if second.Fence <= first.Fence || second.Lease == first.Lease {
		t.Errorf("the claim after a release: got fence %d and lease %s, want a larger fence than %d and another lease than %s", second.Fence, second.Lease, first.Fence, first.Lease)
	}
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/release", "", "Lease-Token: "+first.Lease), api.Superseded)
	expect.Equal(t, "the token after a release by its first owner, while the second has it: state", s.state(t, token), "claimed")
}

// Only the times move on when the same owner asks again.
func (s *service) remoteAgain(t *testing.T) {
	token := s.issue(t, "")
	mine := secret.New()
	first := s.claim(t, token, forAnHour, "Lease-Token: "+mine)
	expect.Equal(t, "the lease of a claim with a secret of its own", first.Lease, mine)
	again := s.claim(t, token, forAnHour, "Lease-Token: "+mine)
	expect.Equal(t, "the same claim again", again, first, cmpopts.IgnoreFields(api.Claimed{}, "LeaseUntil"))
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", forAnHour, "Lease-Token: "+secret.New()), api.InProgress)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", forAnHour), api.InProgress)
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":201}`, "Lease-Token: "+first.Lease)
	replay := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", forAnHour, "Lease-Token: "+mine)
	expect.Equal(t, "the same claim after its answer", replay.Outcome, "replay")
}

// Two workers that gave the name of their service as the owner were both granted the claim.
func (s *service) remoteNamed(t *testing.T) {
	token, key := s.issue(t, ""), secret.New()
	for _, claim := range []struct{ path, fields string }{
		{"/token/" + token + "/claim", `"fingerprint":"f","lease_ms":3600000`},
		{"/operation/claim", `"key":"` + key + `","fingerprint":"f","lease_ms":3600000`},
	} {
		for _, owner := range []string{`"orders-service-eu"`, `"` + secret.New() + `"`, `""`, `null`, `5`} {
			a := s.do(t, "POST", claim.path, "{"+claim.fields+`,"owner":`+owner+"}")
			expect.Contains(t, a.asked, checkProblem(t, a, api.InvalidRequest).Detail, "owner", "Lease-Token", "22 characters")
		}
		for _, lease := range []string{"", "orders-service-eu", secret.New() + "x", secret.New()[:21] + "/"} {
			a := s.do(t, "POST", claim.path, "{"+claim.fields+"}", "Lease-Token: "+lease)
			expect.Contains(t, a.asked, checkProblem(t, a, api.InvalidRequest).Detail, "Lease-Token")
		}
	}
	expect.Equal(t, "the token after the refused claims: state", s.state(t, token), "issued")
	claimed := must[api.Claimed](t, s, 200, "POST", "/operation/claim", `{"key":"`+key+`","fingerprint":"f"}`)
	expect.Equal(t, "the first claim of the key that is granted: attempt", claimed.Attempt, 1)
}

func (s *service) remoteOwner(t *testing.T) {
	token, other := s.issue(t, ""), s.issue(t, "")
	mine, theirs := s.claim(t, token, forAnHour).Lease, s.claim(t, other, forAnHour).Lease
	for verb, body := range map[string]string{"complete": `{"status":200}`, "extend": "", "release": ""} {
		for _, lease := range []string{theirs, "x", mine + "x", mine[1:], strings.ToLower(mine) + "-"} {
			checkProblem(t, s.do(t, "POST", "/token/"+token+"/"+verb, body, "Lease-Token: "+lease), api.Superseded)
		}
		checkProblem(t, s.do(t, "POST", "/token/never/"+verb, body, "Lease-Token: "+mine), api.TokenUnknown)
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+mine)
}

func (s *service) remoteDoubt(t *testing.T) {
	token := s.issue(t, "")
	mine := s.claim(t, token, `{"fingerprint":"f","lease_ms":100,"policy":"hold"}`).Lease
	expect.Eventually(t, "the lease lapses", func() bool { return s.state(t, token) == "in-doubt" })
	// the policy of the claim that was made counts
	for _, policy := range []string{"hold", "takeover"} {
		a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","policy":"`+policy+`"}`)
		wantSee(t, a, api.IdempotencyUnknown, "/token/"+token)
		a.wantHeader(t, "Retry-After", "")
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200,"body_base64":"bGF0ZQ=="}`, "Lease-Token: "+mine)
	replay := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	expect.Equal(t, "a claim after a late answer", replay, api.Claimed{
		Outcome: "replay", Attempt: replay.Attempt, Response: &api.Answer{Status: 200, Headers: map[string]string{}, Body: []byte("late")},
	}, cmpopts.EquateEmpty())
}

func (s *service) remoteTakeover(t *testing.T) {
	token := s.issue(t, "")
	first := s.claim(t, token, `{"fingerprint":"f","lease_ms":100,"policy":"takeover"}`)
	expect.Eventually(t, "the lease lapses", func() bool { return s.state(t, token) == "in-doubt" })
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","policy":"hold"}`), api.IdempotencyUnknown)
	second := s.claim(t, token, `{"fingerprint":"f","lease_ms":3600000,"policy":"takeover"}`)
	expect.Equal(t, "the takeover: attempt", second.Attempt, 2)
	if second.Fence <= first.Fence {
		t.Errorf("the takeover: got fence %d, want more than %d", second.Fence, first.Fence)
	}
	for verb, body := range map[string]string{"complete": `{"status":500}`, "extend": "", "release": ""} {
		checkProblem(t, s.do(t, "POST", "/token/"+token+"/"+verb, body, "Lease-Token: "+first.Lease), api.Superseded)
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+second.Lease)
	replay := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	expect.Equal(t, "a claim after the second attempt's answer", replay, api.Claimed{
		Outcome: "replay", Attempt: replay.Attempt, Response: &api.Answer{Status: 200},
	}, cmpopts.EquateEmpty())
}

func (s *service) remoteAnswers(t *testing.T) {
	for _, given := range []api.Answer{
		{Status: 200},
		{Status: 599, Body: []byte{}},
		{Status: 204, Headers: map[string]string{}},
		{Status: 301, Headers: map[string]string{"Location": "https://example.org/ü"}},
		{Status: 200, Body: []byte(strings.Repeat("\x00", 700_000))},
		{Status: 200, NotKept: true},
	} {
		token := s.issue(t, "")
		mine := s.claim(t, token, forAnHour).Lease
		body, err := json.Marshal(given)
		expect.NoError(t, fmt.Sprintf("writing answer %d", given.Status), err)
		must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", string(body), "Lease-Token: "+mine)
		got := must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`).Response
		asked := fmt.Sprintf("the replay of answer %d with %d bytes", given.Status, len(given.Body))
		if got == nil {
			t.Errorf("%s: got none", asked)
			continue
		}
		expect.Equal(t, asked+": number of bytes", len(got.Body), len(given.Body))
		expect.Equal(t, asked+": the bytes are the same", bytes.Equal(got.Body, given.Body), true)
		expect.Equal(t, asked, *got, given, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(api.Answer{}, "Body"))
	}
}
