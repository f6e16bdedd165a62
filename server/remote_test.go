package server_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestRemoteProtocolOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		t.Run("claim, extend, complete, replay", s.remoteRound)
		t.Run("a claim in progress is told with its wait", s.remoteBusy)
		t.Run("a claim given back can be taken again", s.remoteRelease)
		t.Run("only the owner may complete, extend or release", s.remoteOwner)
		t.Run("a silent attempt under hold stays in doubt until its owner comes back", s.remoteDoubt)
		t.Run("a silent attempt under takeover is superseded", s.remoteTakeover)
		t.Run("of many claims at once one is granted", s.remoteManyAtOnce)
		t.Run("answers of every size and status are kept", s.remoteAnswers)
	})
}

func (s *service) remoteRound(t *testing.T) {
	token := s.issue(t, `{"scope":"billing","ttl_ms":600000}`)
	a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":30000,"policy":"hold"}`)
	granted := decode[wire.Claimed](t, a, 200)
	if granted.Outcome != "granted" || granted.Attempt != 1 || granted.Fence < 1 || granted.Response != nil || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %+v", a.header, granted)
	}
	status := must[wire.TokenStatus](t, s, 200, "GET", "/token/"+token, "")
	if status.State != "claimed" || status.Attempts != 1 || status.Fence != granted.Fence || status.Scope != "billing" || !status.LeaseUntil.Equal(granted.LeaseUntil) {
		t.Errorf("%+v after %+v", status, granted)
	}
	mine := "Lease-Token: " + granted.Lease
	extended := must[wire.Extended](t, s, 200, "POST", "/token/"+token+"/extend", `{"lease_ms":60000}`, mine)
	if !extended.LeaseUntil.After(granted.LeaseUntil) {
		t.Errorf("extended from %v to %v", granted.LeaseUntil, extended.LeaseUntil)
	}
	must[wire.Extended](t, s, 200, "POST", "/token/"+token+"/extend", "", mine)

	const done = `{"status":201,"headers":{"location":"/bills/1","Set-Cookie":"session=secret","Content-Length":"3"},"body_base64":"AP8K"}`
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", done, mine)
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", done, mine)
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":500}`, mine) // harmless: the first answer stays
	for range 2 {
		replay := must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
		if replay.Outcome != "replay" || replay.Lease != "" || replay.Fence != 0 || replay.Response == nil {
			t.Fatalf("%+v", replay)
		}
		if r := replay.Response; r.Status != 201 || string(r.Body) != "\x00\xff\n" || len(r.Headers) != 1 || r.Headers["Location"] != "/bills/1" || r.NotKept {
			t.Errorf("%+v", r)
		}
	}
	if state := s.state(t, token); state != "completed" {
		t.Errorf("state %s", state)
	}
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"g"}`), wire.PayloadMismatch)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/extend", "", mine), wire.Superseded)
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/release", "", mine), wire.Superseded)
}

func (s *service) remoteBusy(t *testing.T) {
	token := s.issue(t, "")
	s.claim(t, token, `{"fingerprint":"f","lease_ms":20000}`)
	a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	problem := checkProblem(t, a, wire.InProgress)
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 20 || problem.See != "/token/"+token {
		t.Errorf("%v %+v", a.header, problem)
	}
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"g"}`), wire.PayloadMismatch)
}

func (s *service) remoteRelease(t *testing.T) {
	token := s.issue(t, "")
	first := s.claim(t, token, `{"fingerprint":"f"}`)
	for range 2 { // a repeat is harmless
		must[nothing](t, s, 204, "POST", "/token/"+token+"/release", "", "Lease-Token: "+first.Lease)
	}
	if state := s.state(t, token); state != "issued" {
		t.Errorf("state %s", state)
	}
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+first.Lease), wire.Superseded)
	second := s.claim(t, token, `{"fingerprint":"another"}`)
	if second.Fence <= first.Fence || second.Attempt != 2 || second.Lease == first.Lease {
		t.Errorf("%+v after %+v", second, first)
	}
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/release", "", "Lease-Token: "+first.Lease), wire.Superseded)
	if state := s.state(t, token); state != "claimed" {
		t.Errorf("the first owner's release freed the second's claim: %s", state)
	}
}

func (s *service) remoteOwner(t *testing.T) {
	token, other := s.issue(t, ""), s.issue(t, "")
	mine, theirs := s.claim(t, token, `{"fingerprint":"f"}`).Lease, s.claim(t, other, `{"fingerprint":"f"}`).Lease
	for verb, body := range map[string]string{"complete": `{"status":200}`, "extend": "", "release": ""} {
		for _, lease := range []string{theirs, "x", mine + "x", mine[1:], strings.ToLower(mine) + "-"} {
			checkProblem(t, s.do(t, "POST", "/token/"+token+"/"+verb, body, "Lease-Token: "+lease), wire.Superseded)
		}
		checkProblem(t, s.do(t, "POST", "/token/never/"+verb, body, "Lease-Token: "+mine), wire.TokenUnknown)
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+mine)
}

func (s *service) remoteDoubt(t *testing.T) {
	token := s.issue(t, "")
	mine := s.claim(t, token, `{"fingerprint":"f","lease_ms":100,"policy":"hold"}`).Lease
	eventually(t, "the lease lapses", func() bool { return s.state(t, token) == "in-doubt" })
	for _, policy := range []string{"hold", "takeover"} { // the policy of the claim that was made counts
		a := s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","policy":"`+policy+`"}`)
		if problem := checkProblem(t, a, wire.IdempotencyUnknown); problem.See != "/token/"+token || a.header.Get("Retry-After") != "" {
			t.Errorf("%v %+v", a.header, problem)
		}
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200,"body_base64":"bGF0ZQ=="}`, "Lease-Token: "+mine)
	replay := must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	if replay.Outcome != "replay" || string(replay.Response.Body) != "late" {
		t.Errorf("%+v", replay)
	}
}

func (s *service) remoteTakeover(t *testing.T) {
	token := s.issue(t, "")
	first := s.claim(t, token, `{"fingerprint":"f","lease_ms":100,"policy":"takeover"}`)
	eventually(t, "the lease lapses", func() bool { return s.state(t, token) == "in-doubt" })
	checkProblem(t, s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","policy":"hold"}`), wire.IdempotencyUnknown)
	second := s.claim(t, token, `{"fingerprint":"f","lease_ms":60000,"policy":"takeover"}`)
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Errorf("%+v after %+v", second, first)
	}
	for verb, body := range map[string]string{"complete": `{"status":500}`, "extend": "", "release": ""} {
		checkProblem(t, s.do(t, "POST", "/token/"+token+"/"+verb, body, "Lease-Token: "+first.Lease), wire.Superseded)
	}
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+second.Lease)
	if replay := must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`); replay.Response == nil || replay.Response.Status != 200 {
		t.Errorf("%+v", replay)
	}
}

func (s *service) remoteManyAtOnce(t *testing.T) {
	token := s.issue(t, "")
	answers := make([]answer, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			a, err := s.send(context.WithoutCancel(t.Context()), call{method: "POST", path: "/token/" + token + "/claim", body: `{"fingerprint":"f"}`})
			if err != nil {
				t.Error(err)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	granted := slices.IndexFunc(answers, func(a answer) bool { return a.status == 200 })
	if granted < 0 {
		t.Fatalf("nobody was granted: %s", answers[0].body)
	}
	for i, a := range answers {
		if i != granted {
			checkProblem(t, a, wire.InProgress)
		}
	}
	if status := must[wire.TokenStatus](t, s, 200, "GET", "/token/"+token, ""); status.Attempts != 1 {
		t.Errorf("%+v", status)
	}
}

func (s *service) remoteAnswers(t *testing.T) {
	for _, given := range []wire.Answer{
		{Status: 200},
		{Status: 599, Body: []byte{}},
		{Status: 204, Headers: map[string]string{}},
		{Status: 301, Headers: map[string]string{"Location": "https://example.org/ü"}},
		{Status: 200, Body: []byte(strings.Repeat("\x00", 700_000))},
		{Status: 200, NotKept: true},
	} {
		token := s.issue(t, "")
		mine := s.claim(t, token, `{"fingerprint":"f"}`).Lease
		body, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", string(body), "Lease-Token: "+mine)
		got := must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`).Response
		if got == nil || got.Status != given.Status || string(got.Body) != string(given.Body) || got.Headers["Location"] != given.Headers["Location"] || got.NotKept != given.NotKept {
			t.Errorf("%d with %d bytes: %.200v", given.Status, len(given.Body), got)
		}
	}
}
