package client

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"2":                             2 * time.Second,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"99999999999999999":             maxWait,
		"99999999999999999999":          0,
		"Fri, 20 Nov 2026 15:35:50 GMT": 4 * time.Second,
		"Fri, 20 Nov 2026 15:35:40 GMT": 0,
		"Fri, 20 Nov 2099 15:35:40 GMT": maxWait,
	} {
		header := http.Header{"Retry-After": {value}, "Date": {"Fri, 20 Nov 2026 15:35:46 GMT"}}
		if got := retryAfter(header); got != want {
			t.Errorf("Retry-After %q: got %v, want %v", value, got, want)
		}
	}
	soon := http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}
	if got := retryAfter(soon); got <= 0 || got > time.Hour {
		t.Errorf("Retry-After in an hour, without a Date: got %v, want up to an hour", got)
	}
}

func TestMillisecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 90 * time.Second: 90_000, -time.Second: -1000, math.MaxInt64: 9223372036855} {
		if got := millis(d); got != want {
			t.Errorf("millis(%v): got %d, want %d", d, got, want)
		}
	}
}

func TestTextsOfOthersAreMadePlain(t *testing.T) {
	ask := call{token: "a-secret-token", lease: "a-secret-lease"}
	for text, want := range map[string]string{
		"as it is: ü, é":                                 "as it is: ü, é",
		"of a-secret-token/a-secret-lease":               "of …/…",
		"a\r\nb\x1b[31m\x00\xffc\u202e":                  "ab[31mc",
		"of a-secret\x1b-token/a\xff-se\u202ecret-lease": "of …/…",
		strings.Repeat("x", maxText+1):                   strings.Repeat("x", maxText) + "…",
	} {
		if got := ask.clean(text); got != want {
			t.Errorf("clean(%q): got %q, want %q", text, got, want)
		}
	}
	if got := (call{token: "a"}).clean("a cat"); got != "a cat" {
		t.Errorf("a token that is part of words: got %q, want it as it was", got)
	}
}

// Whatever answers a write: the error is of one class, holds no secret and nothing that moves a
// terminal, and a wait that can be waited.
func FuzzProblem(f *testing.F) {
	const token, lease = "token-7fh2kq", "lease-9xbwmz" // a code could look like that
	seed := func(status int, media, retry, body string) {
		f.Add(status, media, retry, "id-1", "http://h/"+token, []byte(body))
	}
	f.Add(302, "", "", token, "//"+token, []byte{})
	f.Add(302, "", "", "", "://"+token, []byte{})
	f.Add(302, "", "", "", "https://"+token+":80"+token, []byte{})
	f.Add(503, "application/problem+json", "", lease, "", []byte(`{"code":"`+token+`"}`))
	seed(409, "application/problem+json", "2", `{"type":"/problems/idempotency-in-progress","title":"t","status":409,"detail":"d","instance":"urn:request:1","code":"idempotency-in-progress","retryable":true,"see":"/token/`+token+`"}`)
	seed(503, "application/problem+json; charset=utf-8", "Fri, 20 Nov 2099 15:35:40 GMT", `{"code":"store-unavailable","detail":"`+lease+`"}`)
	seed(503, "application/problem+json", "", `{"code":"store-unavailable","detail":"lease-\u00019xbwmz"}`)
	seed(502, "text/html", "", "<html>"+token)
	seed(302, "", "", "")
	seed(410, "application/problem+json", "-1", `{"code":"lease-lost","title":"\u001b[31m\ud800","detail":["`+lease+`"]}`)
	seed(422, "application/problem+json", "9999999999999", `{"code":"new-code","status":"x"}`)
	f.Fuzz(func(t *testing.T, status int, media, retry, id, location string, body []byte) {
		header := http.Header{"Content-Type": {media}, "Retry-After": {retry}, "X-Request-Id": {id}, "Location": {location}}
		ask := call{op: "claim token", token: token, lease: lease}
		err := (&Error{Op: ask.op, Status: status}).problem(header, body, ask)

		classes := 0
		for _, class := range []error{ErrRefused, ErrLost, ErrUnknownOutcome} {
			if errors.Is(err, class) {
				classes++
			}
		}
		if classes != 1 {
			t.Errorf("%v is of %d classes, want 1", err, classes)
		}
		if known := codes[""]; known != nil || err.Code == "" && !errors.Is(err, withoutCode(status)) {
			t.Errorf("without a code, status %d: got %v, want %v", status, err, withoutCode(status))
		}
		text := err.Error()
		if strings.Contains(text, token) || strings.Contains(text, lease) {
			t.Errorf("a secret in %q", text)
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 20*maxText {
			t.Errorf("not a plain text: %q", text)
		}
		if err.Wait < 0 || err.Wait > maxWait {
			t.Errorf("Retry-After %q: got a wait of %v, want 0 to %v", retry, err.Wait, maxWait)
		}
	})
}
