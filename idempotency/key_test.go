package idempotency

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestParseKeyTakesTheSameKeyQuotedAndBare(t *testing.T) {
	for value, want := range map[string]string{
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"with space"`:                           "with space",
		`"a \"quote\" and a \\slash"`:            `a "quote" and a \slash`,
		`"a,b;c"`:                                "a,b;c",
		`a=b/c+d:e~f!`:                           "a=b/c+d:e~f!",
		`12345`:                                  "12345",
		strings.Repeat("k", 255):                 strings.Repeat("k", 255),
		`"` + strings.Repeat("k", 255) + `"`:     strings.Repeat("k", 255),
	} {
		if got, err := parseKey(value); err != nil || got != want {
			t.Errorf("parseKey(%q): got %q and error %v, want %q", value, got, err, want)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"empty":           ``,
		"empty string":    `""`,
		"list":            `"a", "b"`,
		"bare list":       `a,b`,
		"parameter":       `"a";p=1`,
		"bare parameter":  `a;p=1`,
		"trailing text":   `"a" b`,
		"open quote":      `"a`,
		"quote inside":    `a"b`,
		"bad escape":      `"a\b"`,
		"bare backslash":  `a\b`,
		"non-ASCII":       `ключ`,
		"quoted UTF-8":    `"ключ"`,
		"control":         "\"a\x07\"",
		"two words":       `a b`,
		"binary":          `:aGVsbG8=:;x`,
		"too long":        strings.Repeat("k", 256),
		"too long quoted": `"` + strings.Repeat("k", 256) + `"`,
	} {
		if got, err := parseKey(value); !errors.Is(err, ErrKeyMalformed) {
			t.Errorf("%s: parseKey(%q): got %q and error %v, want %v", name, value, got, err, ErrKeyMalformed)
		} else if problem, _ := Problem(err); problem.Field != KeyHeader {
			t.Errorf("%s: parseKey(%q): got the field %q, want %s", name, value, problem.Field, KeyHeader)
		}
	}
}

func TestKeyOfTakesExactlyWhatTheRouteAccepts(t *testing.T) {
	const missing, malformed = "missing", "malformed"
	for _, row := range []struct {
		name   string
		accept Accept
		tokens []string
		keys   []string
		want   string
		issued bool
	}{
		{"nothing", AcceptEither, nil, nil, missing, false},
		{"token", AcceptEither, []string{"t"}, nil, "", true},
		{"key", AcceptEither, nil, []string{"k"}, "", false},
		{"both", AcceptEither, []string{"t"}, []string{"k"}, "", true},
		{"a token, and keys that a browser has added", AcceptEither, []string{"t"}, []string{"k", "l"}, "", true},
		{"a bad token, and a key", AcceptEither, []string{"not a token"}, []string{"k"}, malformed, false},
		{"two tokens, and a key", AcceptEither, []string{"t", "u"}, []string{"k"}, malformed, false},
		{"two tokens", AcceptEither, []string{"t", "t"}, nil, malformed, false},
		{"two keys", AcceptEither, nil, []string{"k", "k"}, malformed, false},
		{"key where only a token will do", AcceptToken, nil, []string{"k"}, missing, false},
		{"token where only a key will do", AcceptKey, []string{"t"}, nil, missing, false},
		{"bad token", AcceptEither, []string{"not a token"}, nil, malformed, false},
		{"empty token", AcceptEither, []string{""}, nil, malformed, false},
	} {
		request := &http.Request{Header: http.Header{TokenHeader: row.tokens, KeyHeader: row.keys}}
		key, err := keyOf(request, Route{Accept: row.accept}, func(*http.Request) (string, error) { return "p", nil }, "r")
		got := map[bool]string{errors.Is(err, ErrKeyMissing): missing, errors.Is(err, ErrKeyMalformed): malformed}[true]
		if got != row.want || key.issued != row.issued {
			t.Errorf("refOf with %s: got %+v and error %v, want issued %v and error %q", row.name, key, err, row.issued, row.want)
		}
		if row.want == malformed {
			problem, _ := Problem(err)
			field := KeyHeader
			if len(row.tokens) > 0 {
				field = TokenHeader
			}
			expect.Equal(t, "the field of the refusal of "+row.name, problem.Field, field)
		}
	}
}

func TestClientKeyOfAnotherPrincipalOrRouteIsAnotherOperation(t *testing.T) {
	keys := map[Key]string{}
	for _, parts := range [][3]string{{"p", "r", "k"}, {"q", "r", "k"}, {"p", "s", "k"}, {"p", "r", "l"}, {"pr", "", "k"}, {"", "pr", "k"}} {
		key := Key{Principal: parts[0], Scope: parts[1], ID: parts[2]}
		if other, ok := keys[key]; ok {
			t.Errorf("%v is the same operation as %s", parts, other)
		}
		keys[key] = strings.Join(parts[:], "|")
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`"a"`, `a`, `"a\"b"`, `"a", b`, `a;b=c`, `:YQ==:`, `?1`, `"`, `\`, "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := parseKey(value)
		if err != nil {
			return
		}
		if key == "" || len(key) > maxKey {
			t.Fatalf("parseKey(%q): got a key of %d bytes, want 1 to %d", value, len(key), maxKey)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := parseKey(quoted); err != nil || again != key {
			t.Fatalf("%q gave %q, which quoted gives %q, %v", value, key, again, err)
		}
	})
}

// An event's id is unique within its source only, so that both are its key. A part that is missing
// or comes twice is refused, and the parts cannot be taken for others.
func TestKeyOfSeveralPartsIsEachOfThem(t *testing.T) {
	route := Route{KeyHeaders: []string{"ce-source + ce-id", "X-Delivery"}, KeyFromBody: []string{"/source", "/id"}}
	expect.Error(t, "Check", route.Check(), nil)
	expect.Equal(t, "headers", route.headers(), []string{TokenHeader, "Ce-Source + Ce-Id", "X-Delivery"})
	of := func(headers ...string) (string, error) {
		request := &http.Request{Header: http.Header{}}
		for i := 0; i < len(headers); i += 2 {
			request.Header.Add(headers[i], headers[i+1])
		}
		key, err := keyOf(request, route, HeaderPrincipal(), "space")
		return key.Operation(), err
	}
	known := map[string][]string{}
	for _, headers := range [][]string{
		{"Ce-Source", "/pay", "Ce-Id", "99"}, {"Ce-Source", "/refund", "Ce-Id", "99"}, {"Ce-Source", "/pay9", "Ce-Id", "9"}, {"Ce-Source", "99", "Ce-Id", "/pay"},
		{"X-Delivery", "99"}, {"X-Delivery", "/pay99"},
	} {
		name, err := of(headers...)
		expect.Error(t, strings.Join(headers, " "), err, nil)
		if other, isThere := known[name]; isThere {
			t.Errorf("%q is the operation of %q", headers, other)
		}
		known[name] = headers
	}
	for _, headers := range [][]string{{"Ce-Id", "99"}, {"Ce-Source", "/pay", "X-Delivery", "99"}, {"Ce-Source", "/a", "Ce-Id", "1", "Ce-Id", "1"}} {
		_, err := of(headers...)
		expect.Error(t, strings.Join(headers, " "), err, ErrKeyMalformed)
		expect.Contains(t, "the error names the header that is wrong", err.Error(), "Ce-")
	}
	keys := map[string]string{}
	for _, payload := range []string{`{"source":"/pay","id":1}`, `{"source":"/pay","id":"1"}`, `{"source":"/pay1","id":""}`, `{"source":"/refund","id":1}`, `{"source":1,"id":"/pay"}`} {
		key, err := keyIn([]byte(payload), route)
		if strings.Contains(payload, `""`) {
			expect.Error(t, payload, err, ErrKeyMalformed)
			continue
		}
		expect.Error(t, payload, err, nil)
		if other, isThere := keys[key]; isThere {
			t.Errorf("the key of %s is that of %s", payload, other)
		}
		keys[key] = payload
	}
	_, err := keyIn([]byte(`{"source":"/pay"}`), route)
	expect.Error(t, "a payload without an id", err, ErrKeyMissing)
}
