package idempotency

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestSealedAnswerIsReadWithItsKeyAndForItsRecordOnly(t *testing.T) {
	answer := Answer{Status: 201, Header: http.Header{"Location": {"/payments/17"}}, Body: []byte("card 4711")}
	older, newer := testKey("a", 1), testKey("b", 2)
	sealed := newSealer([]Secret{older}).seal("record", answer)
	if bytes.Contains(sealed, []byte("4711")) || bytes.Contains(sealed, []byte("payments")) || !bytes.HasPrefix(sealed, []byte("2 a ")) {
		t.Fatalf("stored as %q, want it encrypted by key a", sealed)
	}
	if twice := newSealer([]Secret{older}).seal("record", answer); bytes.Equal(twice, sealed) {
		t.Error("two encryptions are equal")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, row := range map[string]struct {
		sealer sealer
		record string
		stored []byte
		good   bool
	}{
		"its key":            {newSealer([]Secret{older}), "record", sealed, true},
		"after rotation":     {newSealer([]Secret{newer, older}), "record", sealed, true},
		"another record":     {newSealer([]Secret{older}), "other", sealed, false},
		"without its key":    {newSealer([]Secret{newer}), "record", sealed, false},
		"without any key":    {newSealer(nil), "record", sealed, false},
		"another secret":     {newSealer([]Secret{testKey("a", 9)}), "record", sealed, false},
		"changed":            {newSealer([]Secret{older}), "record", changed, false},
		"cut":                {newSealer([]Secret{older}), "record", sealed[:30], false},
		"stored in the open": {newSealer([]Secret{older}), "record", newSealer(nil).seal("record", answer), true},
	} {
		got, err := row.sealer.open(row.record, string(row.stored))
		if !row.good {
			expect.Error(t, name, err, redisstore.ErrUnavailable)
			continue
		}
		expect.Error(t, name, err, nil)
		expect.Equal(t, name, got, answer)
	}
}

// The stored form of an answer reveals nothing of it, and an answer that cannot be read is neither
// replayed nor made anew.
func TestAnswersAreStoredEncrypted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		h := &handler{}
		guarded := newTokensWith(t, store, Config{AnswerKeys: []Secret{testKey("a", 1)}}).Middleware(Route{Name: "r"})(h)
		first, again := post(guarded, "x", "Idempotency-Key: k"), post(guarded, "x", "Idempotency-Key: k")
		wantStatus(t, "the first request", first, 201)
		expect.Equal(t, "the request again", statusAndBody(again), statusAndBody(first))
		wantHeader(t, "the request again", again, "Location", "/payments/1")
		stored := field(t, newTokens(t, store), Key{Scope: "r", ID: "k"}, "answer")
		if strings.Contains(stored, "payments") || strings.Contains(stored, `"id":1`) {
			t.Errorf("stored in the open: %q", stored)
		}
		without := newTokens(t, store).Middleware(Route{Name: "r"})(h)
		wantStatus(t, "a request where the key is missing", post(without, "x", "Idempotency-Key: k"), 503)
		h.wantRuns(t, 1)
	})
}

func FuzzStoredAnswer(f *testing.F) {
	v := newSealer([]Secret{testKey("a", 1)})
	f.Add([]byte{})
	f.Add([]byte("2 a "))
	f.Add([]byte("2 b xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
	f.Add(v.seal("r", Answer{Status: 204}))
	f.Add(newSealer(nil).seal("r", Answer{Status: 200, Body: []byte("body")}))
	f.Fuzz(func(t *testing.T, stored []byte) {
		answer, err := v.open("r", string(stored))
		if err != nil {
			return
		}
		again, err := v.open("r", string(v.seal("r", answer)))
		if err != nil || again.Status != answer.Status || !bytes.Equal(again.Body, answer.Body) {
			t.Errorf("the answer %+v, sealed and opened: got %+v and error %v", answer, again, err)
		}
	})
}
