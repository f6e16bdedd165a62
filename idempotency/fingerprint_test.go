package idempotency

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func fingerprint(t *testing.T, route Route, body string, headers ...string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
	addHeaders(r, headers)
	sum, err := takeBody(r, "r", route.WithDefaults())
	expect.NoError(t, fmt.Sprintf("the fingerprint of %q", body), err)
	return sum
}

// Records keep fingerprints, so a new version must make the same ones.
func TestFingerprintIsThatOfEarlierVersions(t *testing.T) {
	sum := func(text string) string {
		digest := sha256.Sum256([]byte(text))
		return base64.RawURLEncoding.EncodeToString(digest[:])
	}
	long := strings.Repeat("b", 100_000)
	expect.Equal(t, "fingerprint of a body", fingerprint(t, Route{}, "body"), sum("4:POST,1:r,4:/pay,body"))
	expect.Equal(t, "fingerprint of a long body", fingerprint(t, Route{}, long), sum("4:POST,1:r,4:/pay,"+long))
	expect.Equal(t, "fingerprint with a header", fingerprint(t, Route{Headers: []string{"x-a"}}, "", "X-A: 1", "X-A: 22"), sum("4:POST,1:r,4:/pay,3:X-A,1:1,2:22,"))
	expect.Equal(t, "fingerprint of JSON", fingerprint(t, Route{CanonicalJSON: true}, `{"b": 1, "a": 2}`, "Content-Type: application/json"), sum(`4:POST,1:r,4:/pay,{"a":2,"b":1}`))
}

// A body is whole only if its reader says so with io.EOF itself.
func TestBodyWhoseReaderFailsIsCut(t *testing.T) {
	for _, fault := range []error{io.ErrUnexpectedEOF, fmt.Errorf("connection lost: %w", io.EOF)} {
		r := httptest.NewRequest(http.MethodPost, "/pay", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(fault)))
		_, err := takeBody(r, "r", Route{}.WithDefaults())
		expect.Error(t, "a body that ends with "+fault.Error(), err, ErrBodyCut)
	}
}

func TestFingerprintCoversTheHeadersOfTheRoute(t *testing.T) {
	route := Route{Headers: []string{"x-tenant", "X-Version"}}
	base := fingerprint(t, route, "b", "X-Tenant: a", "X-Version: 1", "User-Agent: x")
	other := fingerprint(t, route, "b", "X-Version: 1", "X-Tenant: a", "User-Agent: y")
	expect.Equal(t, "the fingerprint with headers in another order, and another header", other, base)
	for name, headers := range map[string][]string{
		"other value":     {"X-Tenant: b", "X-Version: 1"},
		"missing":         {"X-Version: 1"},
		"empty":           {"X-Tenant: ", "X-Version: 1"},
		"twice":           {"X-Tenant: a", "X-Tenant: a", "X-Version: 1"},
		"values swapped":  {"X-Tenant: 1", "X-Version: a"},
		"value is a name": {"X-Tenant: X-Version", "X-Version: 1"},
	} {
		if fingerprint(t, route, "b", headers...) == base {
			t.Errorf("%s: the same fingerprint", name)
		}
	}
}

// What looks like a header of another request is none.
func TestFingerprintTellsHeadersAndBodyApart(t *testing.T) {
	tenant, both := Route{Headers: []string{"X-Tenant"}}, Route{Headers: []string{"X-Tenant", "X-Version"}}
	for name, same := range map[string]bool{
		"a body with the value in front": fingerprint(t, tenant, "pay", "X-Tenant: a") == fingerprint(t, tenant, "1:a,pay"),
		"a value that is a header's name": fingerprint(t, both, "pay", "X-Tenant: X-Version", "X-Tenant: 1") ==
			fingerprint(t, both, "pay", "X-Version: 1", "X-Version: X-Version"),
	} {
		if same {
			t.Errorf("%s: the same fingerprint as without", name)
		}
	}
}

func TestCanonicalJSONComparesValues(t *testing.T) {
	const jsonType = "Content-Type: application/json; charset=utf-8"
	route := Route{CanonicalJSON: true}
	of := func(body string, headers ...string) string { return fingerprint(t, route, body, headers...) }
	base := of(`{"amount":1299,"to":"a","deep":{"x":[1,2],"y":null}}`, jsonType)
	for _, same := range []string{
		`{ "to": "a", "deep": {"y": null, "x": [1, 2]}, "amount": 1299 }`, "{\"amount\":1299.0,\n\"to\":\"\\u0061\",\"deep\":{\"x\":[1,2],\"y\":null}}", `{"amount":1.299e3,"to":"a","deep":{"x":[1,2],"y":null}}`,
	} {
		expect.Equal(t, "fingerprint of "+same, of(same, jsonType), base)
	}
	for _, other := range []string{`{"amount":1299,"to":"a","deep":{"x":[2,1],"y":null}}`, `{"amount":"1299","to":"a","deep":{"x":[1,2],"y":null}}`, `{"amount":1299,"to":"a"}`} {
		if of(other, jsonType) == base {
			t.Errorf("the same fingerprint: %s", other)
		}
	}
	// What is not JSON, or holds more digits than a number of 64 bits, is compared byte by byte.
	for name, pair := range map[string][2]string{
		"broken":       {`{"a":1,`, `{"a": 1,`},
		"a name twice": {`{"a":1,"a":2}`, `{"a":1, "a":2}`},
		"two values":   {`1 2`, `1  2`},
		"not UTF-8":    {"\"\xff\"", "\"\xff\" "},
		"beyond 2^53":  {`{"n":9007199254740993}`, `{"n":9007199254740992}`},
	} {
		if of(pair[0], jsonType) == of(pair[1], jsonType) {
			t.Errorf("%s: two texts are one", name)
		}
	}
	if fingerprint(t, Route{}, `{"a":1}`, jsonType) == fingerprint(t, Route{}, `{"a": 1}`, jsonType) {
		t.Error("a route that did not ask compares JSON by value")
	}
}

// A service reads a body as its Content-Type says. Where that is not plainly JSON in UTF-8, two
// texts of one JSON value may be two requests to it.
func TestBodyThatIsNotPlainlyJSONIsComparedByteByByte(t *testing.T) {
	const is, isNot = "by value", "byte by byte"
	for headers, want := range map[string]string{
		"application/json": is, "Application/JSON": is, "application/json;": is, " application/json ; charset=UTF-8": is, `application/json; charset="utf8"`: is,
		"application/json; profile=x": is, "application/problem+json": is, "application/vnd.shop.v2+json;v=1": is,
		"": isNot, "text/plain": isNot, "json": isNot, "text/json": isNot, "application": isNot, "application/": isNot, "/json": isNot, "*/*": isNot, "application/jsonp": isNot,
		"application/json-seq": isNot, "application/x-ndjson": isNot, "application/json5": isNot, "+json": isNot, "application / json": isNot,
		"application/json charset=utf-8": isNot, "application/json; charset": isNot, "application/json; charset=utf-8; charset=utf-7": isNot, "application/json, text/plain": isNot,
		"application/json; charset=utf-7": isNot, "application/json; charset=iso-8859-1": isNot, "text/plain; x=application/json": isNot,
		"application/json\ntext/plain": isNot, "text/plain\napplication/json": isNot, "application/json\napplication/json": isNot,
	} {
		var lines []string
		for value := range strings.SplitSeq(headers, "\n") {
			if value != "" {
				lines = append(lines, "Content-Type: "+value)
			}
		}
		of := func(body string) string { return fingerprint(t, Route{CanonicalJSON: true}, body, lines...) }
		got := isNot
		if of(`{"a":1,"b":2}`) == of(`{"b": 2, "a": 1}`) {
			got = is
		}
		expect.Equal(t, fmt.Sprintf("how a body under Content-Type %q is compared", headers), got, want)
		expect.Equal(t, "two equal bodies are one under Content-Type "+headers, of(`{"b": 2}`), of(`{"b": 2}`))
	}
}

// The example of RFC 8785, section 3.2.2, with its result, but for the digits that a number keeps.
func TestCanonicalJSONIsThatOfRFC8785(t *testing.T) {
	const input = `{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`
	const want = `{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`
	expect.Equal(t, "the canonical form of the example", string(canonicalJSON([]byte(input))), want)
}

func TestNumbersAreComparedExactly(t *testing.T) {
	forms := map[string]string{}
	for form, numbers := range map[string][]string{
		"0":                      {"0", "-0", "0.0", "0e5", "-0.000E-99"},
		"1":                      {"1", "1.0", "10e-1", "0.1e+1", "0.0001E4"},
		"-12.5":                  {"-12.5", "-1.25e1", "-125.00e-1"},
		"1.000000000000000001":   {"1.000000000000000001"},
		"1.000000000000000002":   {"1.000000000000000002"},
		"123456789012345.678":    {"123456789012345.678", "123456789012345678e-3"},
		"123456789012345.679":    {"123456789012345.679"},
		"9007199254740993":       {"9007199254740993", "9007199254740993.0"},
		"9007199254740992":       {"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
		"1e+400":                 {"1e400", "10E399", "0.1e401"},
		"9e+999":                 {"9e999"},
		"1e-400":                 {"1e-400", "0.1e-399"},
		"100000000000000000000":  {"1e20", "100000000000000000000"},
		"1e+21":                  {"1e21", "1000000000000000000000"},
		"0.000001":               {"1e-6", "0.000001"},
		"1e-7":                   {"1e-7", "0.0000001"},
		"1.5e-7":                 {"1.5e-7", "0.00000015"},
		"1e99999999999999999999": {"1e99999999999999999999"}, // no number of 64 bits: as text
		"1E99999999999999999999": {"1E99999999999999999999"},
		// and no string is a number
		`{"1.0":"1.0\\\"","a":[1,-2.5,true],"b":1}`: {`{"b":1.0, "1.0":"1.0\\\"", "a":[1.0,-2.50,true]}`},
	} {
		for _, number := range numbers {
			got := string(canonicalJSON([]byte(number)))
			expect.Equal(t, "the canonical form of "+number, got, form)
			forms[got] = number
		}
	}
	expect.Equal(t, "different numbers", len(forms), 20)
}

// The canonical form of a text has the same value, and is its own canonical form.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `{"b":1,"a":[true,null,"x\u00e9"]}`, `[1e400]`, `-0`, `9007199254740993`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", ` 1 `, `{"a":{"b":{"c":[[]]}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := string(text)
		canonical := canonicalJSON(text)
		if string(text) != before {
			t.Fatal("the text was changed")
		}
		if again := canonicalJSON(canonical); string(again) != string(canonical) {
			t.Errorf("the canonical form of %q is %q, and that of this %q, want the same", text, canonical, again)
		}
		var is, was any
		if json.Unmarshal(text, &was) != nil {
			return
		}
		if err := json.Unmarshal(canonical, &is); err != nil {
			t.Fatalf("%q became %q: %v", text, canonical, err)
		}
		if !reflect.DeepEqual(is, was) && !strings.Contains(before, "-0") {
			t.Errorf("the canonical form of %q is %q, want the same value", text, canonical)
		}
	})
}
