package cli

import (
	"bytes"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestFiftyPostsOfOnePaymentOverTwoServersChargeOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	servers := []*process{
		serve(t, "--dev", "--redis", redis.URL(), "--payment-delay", "2s"),
		serve(t, "--dev", "--redis", redis.URL(), "--payment-delay", "2s"),
	}
	token := servers[0].issue()
	answers := make([]answer, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = servers[i%2].do("POST", "/payments", payment, "Idempotency-Token: "+token) })
	}
	wg.Wait()

	var paid []byte
	inProgress := 0
	for _, a := range answers {
		switch {
		case a.status == 201 && (paid == nil || bytes.Equal(paid, a.body)):
			paid = a.body
		case a.status == 409 && a.code() == api.InProgress && a.header.Get("Retry-After") != "":
			inProgress++
		default:
			t.Errorf("one of fifty posts: got %d %s, want 201 and the same body as others, or 409 in-progress with Retry-After", a.status, a.body)
		}
	}
	if paid == nil || inProgress == 0 {
		t.Errorf("fifty posts: got the payment %s, and %d that were told that it is in progress; want one, and at least one", paid, inProgress)
	}
	expect.Equal(t, "charges in the ledger", servers[1].ledger().Total, 1)
	for _, server := range servers {
		again := server.do("POST", "/payments", payment, "Idempotency-Token: "+token)
		if again.status != 201 || !bytes.Equal(again.body, paid) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a repeat: got %d %s, want 201 %s, replayed", again.status, again.body, paid)
		}
	}
}

// The server is killed after the charge and before the answer: the token alone cannot tell
// whether the money moved, so nothing runs again.
func TestKilledServerLeavesTheOutcomeUnknownAndChargesOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	doomed := serveProcess(t, "--dev", "--redis", redis.URL(), "--payment-delay", "1m", "--payment-lease", "500ms")
	other := serve(t, "--dev", "--redis", redis.URL(), "--payment-lease", "500ms")
	token := doomed.issue()
	lost := make(chan error)
	go func() {
		_, err := doomed.try("POST", "/payments", payment, "Idempotency-Token: "+token)
		lost <- err
	}()
	eventually(t, "the charge is made", func() bool { return other.ledger().Total == 1 })
	if a := other.do("POST", "/payments", payment, "Idempotency-Token: "+token); a.code() != api.InProgress {
		t.Errorf("a repeat while it runs: got %d %s, want code %s", a.status, a.body, api.InProgress)
	}
	doomed.kill()
	if err := <-lost; err == nil {
		t.Error("the client of a killed server got an answer")
	}
	eventually(t, "the outcome is unknown", func() bool {
		return other.do("POST", "/payments", payment, "Idempotency-Token: "+token).code() == api.IdempotencyUnknown
	})
	a := other.do("POST", "/payments", payment, "Idempotency-Token: "+token)
	a.is(t, "a repeat of an unknown request", 409)
	expect.Equal(t, "its code", a.code(), api.IdempotencyUnknown)
	expect.Contains(t, "its answer", string(a.body), "/token/"+token)
	var status api.TokenStatus
	other.do("GET", "/token/"+token, "").into(t, &status)
	expect.Equal(t, "state of the token", status.State, "in-doubt")
	expect.Equal(t, "attempts with the token", status.Attempts, 1)
	expect.Equal(t, "charges in the ledger", other.ledger().Total, 1)
}

func TestStoppedServerFinishesThePaymentThatItBegan(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	stopping := serve(t, "--dev", "--redis", redis.URL(), "--payment-delay", "1s")
	other := serve(t, "--dev", "--redis", redis.URL())
	token := stopping.issue()
	answered := make(chan answer)
	go func() { answered <- stopping.do("POST", "/payments", payment, "Idempotency-Token: "+token) }()
	eventually(t, "the charge is made", func() bool { return other.ledger().Total == 1 })
	stopping.endsWell()
	first := <-answered
	again := other.do("POST", "/payments", payment, "Idempotency-Token: "+token)
	if first.status != 201 || !bytes.Equal(first.body, again.body) || other.ledger().Total != 1 {
		t.Errorf("the payment that had begun before the stop: got %d %s, its repeat %d %s, %d charges; want 201 twice, the same, and one charge",
			first.status, first.body, again.status, again.body, other.ledger().Total)
	}
}
