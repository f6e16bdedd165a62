package client_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

// A program runs its work on Redis itself, and another over HTTP: under one key they give each
// other what the function of the first one returned.
func TestLibraryAndClientGiveEachOtherTheSameValue(t *testing.T) {
	store := open(t, "embedded:")
	s := serveWith(t, server.Config{Store: store, MaxBody: 4 << 20}) // more than is kept
	tokens := idempotency.New(store, idempotency.Config{})
	t.Cleanup(func() { succeeds(t, "closing the tokens", tokens.Close(context.Background())) })
	for name, value := range map[string][]byte{
		"bytes": []byte("\x00\xff\n"), "a text": []byte("paid"), "none": nil, "more than is kept": bytes.Repeat([]byte("x"), 1<<20+1),
	} {
		wantFirst, want := plain{string(value), false, false}, plain{string(value), true, false}
		if len(value) > 1<<20 {
			want = plain{"", true, true}
		}
		work := func(context.Context, *idempotency.Attempt) ([]byte, error) { return value, nil }
		overHTTP := func(context.Context, *client.Attempt) ([]byte, error) { return value, nil }

		_, err := tokens.Do(t.Context(), idempotency.Key{Scope: "of-the-library", ID: name}, idempotency.ClaimOptions{}, work)
		must(t, "Do of the library with "+name, err)
		got, err := s.DoKey(t.Context(), client.OwnKey{Scope: "of-the-library", Key: name}, client.ClaimOptions{}, mustNotRun(t))
		succeeds(t, "DoKey after Do of the library with "+name, err)
		expect.Equal(t, "DoKey after Do of the library with "+name, plainOf(got), want)

		first, err := s.DoKey(t.Context(), client.OwnKey{Scope: "of-the-client", Key: name}, client.ClaimOptions{}, overHTTP)
		must(t, "DoKey with "+name, err)
		expect.Equal(t, "DoKey with "+name, plainOf(first), wantFirst)
		repeat, err := tokens.Do(t.Context(), idempotency.Key{Scope: "of-the-client", ID: name}, idempotency.ClaimOptions{}, nil)
		succeeds(t, "Do of the library after DoKey with "+name, err)
		expect.Equal(t, "Do of the library after DoKey with "+name, plainOf(client.Result(repeat)), want)
	}
}

// plain is a result with its value as a text.
type plain struct {
	value             string
	replayed, notKept bool
}

func plainOf(result client.Result) plain {
	return plain{string(result.Value), result.Replayed, result.NotKept}
}

// Clients in other languages record a status and headers, too.
func TestDoReplaysTheBodyOfAnAnswer(t *testing.T) {
	s := embedded(t)
	token := issue(t, s.Client)
	outcome, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	must(t, "Claim", err)
	must(t, "Complete", s.Complete(t.Context(), token, outcome.Grant.Lease, done))
	result, err := s.Do(t.Context(), token, client.ClaimOptions{Fingerprint: "f"}, mustNotRun(t))
	isDone(t, "Do after Complete", result, err, true)
}
