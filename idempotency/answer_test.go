package idempotency

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestAnswerIsReadAsItWasStored(t *testing.T) {
	for _, answer := range []Answer{
		{Status: 201, Header: http.Header{"Location": {"/a"}, "Vary": {"A", "B"}}, Body: []byte("{\"a\":1}\n")},
		{Status: 204, Body: []byte{}},
		{Status: 500, Body: []byte{0, 255, '\n', '\n'}},
		{Status: 200, Body: []byte{}, NotKept: true},
		{Status: 200, Header: http.Header{"Content-Type": {}, "X": {"", "1:a,2 ", "ü\n"}}, Body: []byte("1 2 3:abc,")},
	} {
		got, err := decodeAnswer(string(answer.encode()))
		expect.Error(t, "decoding an answer", err, nil)
		expect.Equal(t, "answer encoded and decoded", got, answer)
	}
}

func TestDecodeAnswerRefusesWhatOthersWrote(t *testing.T) {
	for _, stored := range []string{
		"", "\n", "{}\n", "1", "1 ", "1 200", "1 200 0", "1 200 0 0", "1 200 0 1 ", "1 200 0 1 1:A,", "1 200 0 1 1:A,1 ", "1 200 0 1 1:A,1 1:b", "1 200 0 1 1:A,1 1:b;",
		"1 200 0 1 2:A,1 1:b,", "1 200 0 1 1:A,2 1:b,", "1 200 0 2 1:A,1 1:b,", "1 200 2 0 ", "1 199 0 0 ", "1 600 0 0 ", "1 -200 0 0 ", "1 +200 0 0 ", "1 200 0 -1 ", "3 200 0 0 ",
		"1 200 0 1 1:A,1 99999999999999999999:b,", "1 200 0 1 1:A,9999999999 1:b,", "01 200 0 0 ",
	} {
		if answer, err := decodeAnswer(stored); !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("decodeAnswer(%q): got %+v and error %v, want %v", stored, answer, err, redisstore.ErrUnavailable)
		}
	}
}

func TestRemoveUnsafeDropsWhatBelongsToOneConnectionOrClient(t *testing.T) {
	header := http.Header{
		"Content-Type": {"a/b"}, "Location": {"/x"}, "Etag": {`"1"`},
		"Set-Cookie": {"s=1"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Transfer-Encoding": {"chunked"}, "Date": {"now"},
		"Content-Length": {"3"}, "X-Request-Id": {"r"}, "Trailer:X-Sum": {"1"}, "Upgrade": {"h2c"},
	}
	want := http.Header{"Content-Type": {"a/b"}, "Location": {"/x"}, "Etag": {`"1"`}}
	removeUnsafe(header)
	expect.Equal(t, "the header after removeUnsafe", header, want)
}

func TestReplaySaysThatItIsOne(t *testing.T) {
	w := httptest.NewRecorder()
	Answer{Status: 201, Header: http.Header{"Location": {"/a"}, "Content-Type": {"text/x"}}, NotKept: true}.replay(w)
	expect.Equal(t, "replay", statusAndBody(w), "201 ")
	wantReplayed(t, "replay", w, true)
	wantHeader(t, "replay", w, "Idempotent-Body", "not-kept")
	wantHeader(t, "replay", w, "Location", "/a")
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(Answer{Status: 201, Header: http.Header{"A": {"b"}}, Body: []byte("x")}.encode())
	f.Add([]byte("1 200 0 1 10:Connection,1 4:a,,b,body"))
	f.Add([]byte("1 200 1 0 "))
	f.Fuzz(func(t *testing.T, stored []byte) {
		answer, err := decodeAnswer(string(stored))
		if err != nil {
			return
		}
		again, err := decodeAnswer(string(answer.encode()))
		if err != nil || again.Status != answer.Status || !bytes.Equal(again.Body, answer.Body) || again.NotKept != answer.NotKept {
			t.Fatalf("decodeAnswer(%q): got %+v; encoded and decoded again it is %+v, error %v", stored, answer, again, err)
		}
	})
}
