package idempotency

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// webhook is a route whose senders have a key of their own.
func webhook(change func(*Route)) Route {
	route := Route{Name: "hook", KeyHeaders: []string{"webhook-id", "X-GitHub-Delivery"}, KeyFromBody: "/event/id"}
	change(&route)
	return route
}

func same(*Route) {}

func TestKeyOfASenderIsTheOperation(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*Route)
		first   []string // the body, and headers
		repeat  []string
		another bool
	}{
		{"a header", same, []string{"x", "Webhook-Id: msg_1"}, []string{"x", "Webhook-Id: msg_1"}, false},
		{"another key", same, []string{"x", "Webhook-Id: msg_1"}, []string{"x", "Webhook-Id: msg_2"}, true},
		{"the second header", same, []string{"x", "X-Github-Delivery: 72d3162e-cc78-11e3"}, []string{"x", "X-Github-Delivery: 72d3162e-cc78-11e3"}, false},
		{"the first of two", same, []string{"x", "Webhook-Id: a", "X-Github-Delivery: b"}, []string{"x", "Webhook-Id: a", "X-Github-Delivery: c"}, false},
		{"a header before the body", same, []string{`{"event":{"id":"e"}}`, "Webhook-Id: a"}, []string{`{"event":{"id":"e"}}`, "Webhook-Id: b"}, true},
		{"a key with quotes is another", same, []string{"x", `Webhook-Id: "a"`}, []string{"x", "Webhook-Id: a"}, true},
		{"Idempotency-Key in the list is as always", func(r *Route) { r.KeyHeaders = []string{"idempotency-key"} },
			[]string{"x", `Idempotency-Key: "a"`}, []string{"x", "Idempotency-Key: a"}, false},
		{"the body", same, []string{`{"event":{"id":"evt_1"}}`}, []string{`{"event":{"id":"evt_1"}}`}, false},
		{"a number of the body", same, []string{`{"event":{"id":9007199254740993}}`}, []string{`{"event":{"id":9007199254740993}}`}, false},
		{"numbers that are one as floats", same, []string{`{"event":{"id":9007199254740993}}`}, []string{`{"event":{"id":9007199254740992}}`}, true},
		{"an Idempotency-Key that is not looked at", same, []string{`{"event":{"id":1}}`, "Idempotency-Key: a"}, []string{`{"event":{"id":1}}`, "Idempotency-Key: b"}, false},
		{"an element of a list", func(r *Route) { r.KeyFromBody = "/1/a~1b" }, []string{`[0,{"a/b":"k"}]`}, []string{`[0,{"a/b":"k"}]`}, false},
		{"an empty name", func(r *Route) { r.KeyFromBody = "/" }, []string{`{"":"k"}`}, []string{`{"":"k"}`}, false},
		{"the key alone", func(r *Route) { r.Accept = KeyOnly }, []string{`{"event":{"id":1}}`}, []string{`{"event":{"id":1}}`}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := &handler{}
			guarded := embeddedTokens(t).Middleware(webhook(row.change))(h)
			for i, sent := range [][]string{row.first, row.repeat} {
				w := post(guarded, sent[0], sent[1:]...)
				wantStatus(t, "POST", w, 201)
				wantReplayed(t, "POST", w, i == 1 && !row.another)
			}
			h.wantRuns(t, map[bool]int64{false: 1, true: 2}[row.another])
		})
	}
}

// The same value of another delivery is another request, whatever names it.
func TestKeyOfASenderWithAnotherBodyIsRefused(t *testing.T) {
	h := &handler{}
	guarded := embeddedTokens(t).Middleware(webhook(same))(h)
	wantStatus(t, "POST", post(guarded, `{"event":{"id":"e"}}`), 201)
	wantCode(t, "POST of another body", post(guarded, `{"event":{"id":"e"},"more":1}`), api.PayloadMismatch)
	wantCode(t, "POST with the value in a header", post(guarded, "x", "Webhook-Id: e"), api.PayloadMismatch)
	h.wantRuns(t, 1)
}

func TestRequestWithoutTheSendersKeyIsToldWhereItBelongs(t *testing.T) {
	long := strings.Repeat("k", maxKey+1)
	body := func(id string) []string { return []string{`{"event":{"id":` + id + `}}`} }
	for _, row := range []struct {
		name   string
		change func(*Route)
		sent   []string
		code   api.Code
		field  string
		detail string
	}{
		{"nothing", same, []string{"{}"}, api.KeyMissing, "body/event/id", "Idempotency-Token or webhook-id or X-GitHub-Delivery or the value at /event/id of a JSON body"},
		{"no header", func(r *Route) { r.KeyFromBody = "" }, []string{"x"}, api.KeyMissing, "webhook-id", "webhook-id or X-GitHub-Delivery"},
		{"Idempotency-Key in place of the header", func(r *Route) { r.KeyFromBody = "" }, []string{"x", "Idempotency-Key: k"}, api.KeyMissing, "webhook-id", ""},
		{"no body", same, []string{""}, api.KeyMissing, "body/event/id", "the value at /event/id"},
		{"a form", same, []string{"event=1"}, api.KeyMalformed, "body/event/id", "the body has to be JSON"},
		{"two values", same, []string{`{"event":{"id":1}} {}`}, api.KeyMalformed, "body/event/id", "the body has to be JSON"},
		{"a body cut short", same, []string{`{"event":{"id":1}`}, api.KeyMalformed, "body/event/id", "the body has to be JSON"},
		{"a name twice", same, []string{`{"event":{"id":"a","id":"b"}}`}, api.KeyMalformed, "body/event/id", "each name once"},
		{"bytes that are no UTF-8", same, body("\"\xff\""), api.KeyMalformed, "body/event/id", "UTF-8"},
		{"null", same, body("null"), api.KeyMalformed, "body/event/id", "a text or a whole number, 1 to 255 bytes"},
		{"an object", same, body(`{"id":1}`), api.KeyMalformed, "body/event/id", "a text or a whole number"},
		{"a list", same, body(`[1]`), api.KeyMalformed, "body/event/id", "a text or a whole number"},
		{"true", same, body("true"), api.KeyMalformed, "body/event/id", "a text or a whole number"},
		{"a fraction", same, body("1.0"), api.KeyMalformed, "body/event/id", "a text or a whole number"},
		{"an exponent", same, body("1e3"), api.KeyMalformed, "body/event/id", "a text or a whole number"},
		{"an empty text", same, body(`""`), api.KeyMalformed, "body/event/id", "1 to 255 bytes"},
		{"a long text", same, body(`"` + long + `"`), api.KeyMalformed, "body/event/id", "1 to 255 bytes"},
		{"a control character", same, body(`"a\n"`), api.KeyMalformed, "body/event/id", "without control characters"},
		{"an element that is not there", func(r *Route) { r.KeyFromBody = "/01" }, []string{"[1,2]"}, api.KeyMissing, "body/01", ""},
		{"a long header", same, []string{"x", "Webhook-Id: " + long}, api.KeyMalformed, "webhook-id", "1 to 255 visible ASCII characters"},
		{"a header with a space", same, []string{"x", "Webhook-Id: a b"}, api.KeyMalformed, "webhook-id", "without spaces"},
		{"an empty header", same, []string{"x", "Webhook-Id: "}, api.KeyMalformed, "webhook-id", "1 to 255"},
		{"a header twice", same, []string{"x", "Webhook-Id: a", "Webhook-Id: a"}, api.KeyMalformed, "", "one header field"},
		{"a body over the bound", func(r *Route) { r.MaxBody = 10 }, body("1"), api.PayloadTooLarge, "", "10 bytes"},
		{"a token where keys are taken", func(r *Route) { r.Accept = KeyOnly }, append(body("1"), "Idempotency-Token: t"), api.KeyMalformed, "", "the value at /event/id of a JSON body, not Idempotency-Token"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := &handler{}
			w := post(embeddedTokens(t).Middleware(webhook(row.change))(h), row.sent[0], row.sent[1:]...)
			wantCode(t, "POST", w, row.code)
			h.wantRuns(t, 0)
			expect.Contains(t, "the answer", w.Body.String(), row.detail)
			if row.field != "" {
				expect.Contains(t, "the answer", w.Body.String(), fmt.Sprintf(`"field":%q`, row.field))
			}
		})
	}
}

func TestRouteWhoseKeyIsNowhereIsRefused(t *testing.T) {
	for _, row := range []struct {
		change func(*Route)
		want   string
	}{
		{func(r *Route) { r.KeyHeaders = []string{"no header"} }, `key header "no header": not a header's name`},
		{func(r *Route) { r.KeyHeaders = []string{"A", "a"} }, `key header "a": given twice`},
		{func(r *Route) { r.KeyHeaders = []string{"idempotency-token"} }, `has tokens that were issued`},
		{func(r *Route) { r.Accept = TokenOnly }, "needs accept key or either"},
		{func(r *Route) { r.KeyFromBody = "$.event.id" }, `did you mean "/event/id"?`},
		{func(r *Route) { r.KeyFromBody = "#/event/id" }, `did you mean "/event/id"?`},
		{func(r *Route) { r.KeyFromBody = "id" }, `did you mean "/id"?`},
		{func(r *Route) { r.KeyFromBody = "/a~2" }, "a JSON Pointer (RFC 6901)"},
		{func(r *Route) { r.KeyFromBody = "/" + strings.Repeat("a", 255) }, "1 to 255 bytes"},
		{func(r *Route) { r.Optional = true }, "whether there is one is known when the body has been read"},
	} {
		expect.Contains(t, "Check", fmt.Sprint(webhook(row.change).Check()), row.want)
	}
	expect.Error(t, "Check", webhook(same).Check(), nil)
	expect.Error(t, "Check of a route with an optional header", webhook(func(r *Route) { r.KeyFromBody, r.Optional = "", true }).Check(), nil)
}

// The handler gets the body that was looked into.
func TestBodyWithAKeyArrivesWhole(t *testing.T) {
	var got string
	guarded := embeddedTokens(t).Middleware(webhook(func(r *Route) { r.CanonicalJSON = true }))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body) // one read has all of it
		got = string(body[:n])
	}))
	sent := `{ "z": 1, "event": {"id": "e"} }`
	post(guarded, sent)
	expect.Equal(t, "what the handler got", got, sent)
}

func FuzzValueAt(f *testing.F) {
	f.Add([]byte(`{"id":"a","x":{"id":[1,{"":2}]}}`), "/x/id/1/")
	f.Add([]byte(`[[]]`), "/0")
	f.Fuzz(func(t *testing.T, body []byte, at string) {
		route := Route{Name: "r", KeyFromBody: at}
		if at == "" || route.Check() != nil {
			return
		}
		key, err := route.keyIn(body)
		if (err == nil) != (len(key) >= 1 && len(key) <= maxKey) {
			t.Errorf("keyIn of %q at %q: got %q and %v", body, at, key, err)
		}
		if problem, ok := Problem(err); err != nil && (!ok || problem.Field == "") {
			t.Errorf("keyIn of %q at %q: got %v, want a problem with its field", body, at, err)
		}
	})
}

func BenchmarkKeyInBody(b *testing.B) {
	body := []byte(`{"object":"event","data":{"object":{"id":"in_1","lines":[` + strings.Repeat(`{"amount":1299,"currency":"eur"},`, 100) + `{}]}},"id":"evt_1"}`)
	route := Route{Name: "r", KeyFromBody: "/id"}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if key, err := route.keyIn(body); key != "evt_1" {
			b.Fatal(key, err)
		}
	}
}
