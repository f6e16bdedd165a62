package idempotency

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestKeyInAPayload(t *testing.T) {
	for _, row := range []struct{ pointer, payload, key, wrong string }{
		{"/id", `{"id":"evt_1"}`, "evt_1", ""},
		{"/id", ` {"data": {"id": "inner"}, "id": "outer"} `, "outer", ""},
		{"/data/object/id", `{"data":{"object":{"id":"deep"}}}`, "deep", ""},
		{"/events/1/id", `{"events":[{"id":"a"},{"id":"b"}]}`, "b", ""},
		{"/a~1b", `{"a/b":"slash"}`, "slash", ""},
		{"/m~0n", `{"m~n":"tilde"}`, "tilde", ""},
		{"/id", `{"id":17}`, numberMark + "17", ""},
		{"/id", `{"id":-9007199254740993}`, numberMark + "-9007199254740993", ""},
		{"/id", `{"id":"Ä ü\u00df"}`, "Ä üß", ""},
		{"/id", `{"id":"` + strings.Repeat("x", 1024) + `"}`, strings.Repeat("x", 1024), ""},
		{"/id", `{"id":"a","text":"half \ud83d","\udc00":1}`, "a", ""},
		{"/id", "{\"text\":\"\xff\",\"id\" : \"a\" }", "a", ""},
		{"/a", `{"a":" , : "}`, " , : ", ""},

		{"/id", `{"id":"` + strings.Repeat("x", 1025) + `"}`, "", "1 to 1024 bytes"},
		{"/id", `{"id":""}`, "", "1 to 1024 bytes"},
		{"/id", `{"id":"a\nb"}`, "", "control characters"},
		{"/id", `{"id":1.5}`, "", "whole number"},
		{"/id", `{"id":-0}`, "", "whole number"}, // it is 0, which another attempt may write
		{"/id", `{"id":1e3}`, "", "whole number"},
		{"/id", `{"id":null}`, "", "a text of"},
		{"/id", `{"id":true}`, "", "a text of"},
		{"/id", `{"id":{"id":"x"}}`, "", "a text of"},
		{"/id", `{"id":["x"]}`, "", "a text of"},
		{"/id", `{}`, "", "/id of the payload"},
		{"/id", `{"Id":"x"}`, "", "/id of the payload"},
		{"/id", `["x"]`, "", "/id of the payload"},
		{"/0", `"x"`, "", "/0 of the payload"},
		{"/events/1/id", `{"events":[{"id":"a"}]}`, "", "/events/1/id of the payload"},
		{"/id", ``, "", "is not JSON"},
		{"/id", `id=evt_1`, "", "is not JSON"},
		{"/id", `{"id":"a"`, "", "is not JSON"},
		{"/id", `{"id":"a"} {"id":"b"}`, "", "is not JSON"},
		{"/id", `{"id":"a","id":"b"}`, "", "is not JSON"},
		{"/id", "{\"id\":\"\xff\"}", "", "of UTF-8"},
		{"/id", `{"id":"evt_\ud83d"}`, "", "of UTF-8"},
		{"/id", `{"id":"\udc00"}`, "", "of UTF-8"},
	} {
		key, err := keyIn([]byte(row.payload), Route{KeyFromBody: []string{row.pointer}})
		expect.Equal(t, row.pointer+" of "+row.payload, key, row.key)
		if row.wrong != "" {
			expect.Contains(t, "the error for "+row.payload, err.Error(), row.wrong)
		} else {
			expect.MustEqual(t, "the error for "+row.payload, err, nil)
		}
	}
}

func FuzzKeyInAPayload(f *testing.F) {
	for _, seed := range []struct{ pointer, payload string }{
		{"/id", `{"id":"evt_1"}`}, {"/a/0/b", `{"a":[{"b":1}]}`}, {"/~0~1", `{"~/":"x"}`}, {"/", `{"":"x"}`}, {"/id", `[`},
	} {
		f.Add(seed.pointer, seed.payload)
	}
	f.Fuzz(func(t *testing.T, pointer, payload string) {
		if !validPointer(pointer) || pointer == "" {
			return
		}
		if key, err := keyIn([]byte(payload), Route{KeyFromBody: []string{pointer}}); err == nil && (len(key) < 1 || len(key) > maxBodyKey) {
			t.Errorf("%s of %q: key %q", pointer, payload, key)
		}
	})
}

// webhooks is a receiver that has deliveries by an id of the sender's.
func webhooks(t *testing.T, route Route) (deliver func(payload string, headers ...string) *httptest.ResponseRecorder, runs *int) {
	t.Helper()
	tokens, runs := newTokens(t, storetest.Open(t, redisstore.Config{})), new(int)
	route.Name = "POST /hooks"
	handler := tokens.Middleware(route)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*runs++
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.Copy(w, r.Body)
	}))
	return func(payload string, headers ...string) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks", strings.NewReader(payload))
		return serve(handler, request, headers...)
	}, runs
}

func TestKeyOfTheSendersOwnHeader(t *testing.T) {
	deliver, runs := webhooks(t, Route{KeyHeaders: []string{"webhook-id", "X-GitHub-Delivery"}})
	for range 2 {
		expect.Equal(t, "status", deliver("{}", "Webhook-Id: msg_1").Code, http.StatusAccepted)
	}
	expect.Equal(t, "runs of one id", *runs, 1)
	deliver("{}", "X-GitHub-Delivery: msg_1", "Webhook-Id: msg_2")
	expect.Equal(t, "runs: the first name of the list counts", *runs, 2)
	deliver("{}", "Webhook-Id: msg_2", "Idempotency-Key: other")
	expect.Equal(t, "runs: it comes before Idempotency-Key", *runs, 2)
	deliver("{}", `X-GitHub-Delivery: "quoted", and more`)
	expect.Equal(t, "runs: it is taken as it stands", *runs, 3)
	expect.Equal(t, "another payload", deliver(`{"n":1}`, "Webhook-Id: msg_1").Code, http.StatusUnprocessableEntity)
	for _, wrong := range [][]string{{"Webhook-Id: a", "Webhook-Id: b"}, {"Webhook-Id: " + strings.Repeat("x", 256)}, {"Webhook-Id: ä"}, {"Webhook-Id: "}} {
		expect.Equal(t, "status with "+strings.Join(wrong, ", ")[:12], deliver("{}", wrong...).Code, http.StatusBadRequest)
	}
	missing := deliver("{}")
	expect.Equal(t, "status without a key", missing.Code, http.StatusBadRequest)
	expect.Contains(t, "the refusal", missing.Body.String(), "Webhook-Id or X-Github-Delivery or Idempotency-Key", "idempotency-key-missing")
	expect.Equal(t, "runs at the end", *runs, 3)
}

func TestKeyFromTheBody(t *testing.T) {
	deliver, runs := webhooks(t, Route{KeyFromBody: []string{"/id"}, KeyHeaders: []string{"webhook-id"}})
	first := deliver(`{"id":"evt_1","pending_webhooks":2}`)
	expect.Equal(t, "the handler's body", first.Body.String(), `{"id":"evt_1","pending_webhooks":2}`)
	again := deliver(`{"id":"evt_1","pending_webhooks":1}`)
	expect.Equal(t, "status of a repeat that was written anew", again.Code, http.StatusAccepted)
	expect.Equal(t, "answer to it", again.Body.String(), first.Body.String())
	deliver(`{"id":"evt_2"}`)
	deliver(`{"id":"evt_3"}`, "Webhook-Id: msg_1")
	deliver(`{"id":"evt_3"}`, "Webhook-Id: msg_1")
	deliver(`{"id":"evt_3"}`)
	expect.Equal(t, "runs: a header comes first, and has other keys", *runs, 4)
	for payload, code := range map[string]string{
		`{"no":"id"}`: "idempotency-key-missing", `id=evt_1`: "idempotency-key-malformed", ``: "idempotency-key-malformed",
		`{"id":"` + strings.Repeat("x", 1<<20) + `"}`: "payload-too-large",
	} {
		answer := deliver(payload)
		expect.Contains(t, "the refusal of "+payload[:min(len(payload), 12)], answer.Body.String(), code)
	}
	expect.Equal(t, "runs at the end", *runs, 4)
}

// Which requests have the same key is not guessed of what cannot be read.
func TestAPayloadThatIsEncodedIsRefusedWhereItsKeyIsIn(t *testing.T) {
	deliver, runs := webhooks(t, Route{KeyFromBody: []string{"/id"}, KeyHeaders: []string{"webhook-id"}, Optional: true})
	var packed strings.Builder
	packer := gzip.NewWriter(&packed)
	_, _ = packer.Write([]byte(`{"id":"evt_1"}`))
	expect.MustEqual(t, "error of gzip", packer.Close(), error(nil))
	for _, payload := range []string{packed.String(), `{"id":"evt_1"}`} {
		answer := deliver(payload, "Content-Encoding: gzip")
		expect.Equal(t, "status", answer.Code, http.StatusBadRequest)
		expect.Contains(t, "the refusal", answer.Body.String(), "idempotency-key-malformed", `"field":"Content-Encoding"`, "the key is in the payload")
	}
	expect.Equal(t, "runs", *runs, 0)
	for range 2 {
		answer := deliver(packed.String(), "Content-Encoding: gzip", "Webhook-Id: msg_1")
		expect.Equal(t, "the handler's body, where the key is in a header", answer.Body.String(), packed.String())
	}
	deliver(`{"id":"evt_1"}`, "Content-Encoding: identity")
	expect.Equal(t, "runs at the end", *runs, 2)
}

// Without a key in its payload a request of a route that needs none passes with its whole body.
func TestAPayloadWithoutAKeyPassesWhereNoneIsNeeded(t *testing.T) {
	deliver, runs := webhooks(t, Route{KeyFromBody: []string{"/id"}, Optional: true})
	for range 2 {
		expect.Equal(t, "the handler's body", deliver(`{"ping":true}`).Body.String(), `{"ping":true}`)
	}
	deliver(`{"id":"a"}`)
	deliver(`{"id":"a"}`)
	expect.Equal(t, "runs", *runs, 3)
}

func TestRoutesWithKeysElsewhereAreChecked(t *testing.T) {
	for _, route := range []Route{
		{KeyFromBody: []string{"id"}}, {KeyFromBody: []string{"/~2"}}, {KeyFromBody: []string{"/" + strings.Repeat("x", 200)}}, {KeyHeaders: []string{"a b"}},
		{Accept: AcceptToken, KeyFromBody: []string{"/id"}}, {Accept: AcceptToken, KeyHeaders: []string{"webhook-id"}},
	} {
		if route.Check() == nil {
			t.Errorf("Check of %+v: no error", route)
		}
	}
	for _, route := range []Route{{KeyFromBody: []string{"/id"}}, {KeyFromBody: []string{"/a~1b/0/~0"}}, {KeyFromBody: []string{"/"}}, {KeyHeaders: []string{"webhook-id"}}} {
		expect.Error(t, fmt.Sprintf("Check of %+v", route), route.Check(), nil)
	}
	expect.Equal(t, "published", Route{Name: "POST /hooks", KeyHeaders: []string{"webhook-id"}, KeyFromBody: []string{"/id"}, Accept: AcceptKey}.Published().Headers,
		[]string{"Webhook-Id"})
	expect.Equal(t, "published with Idempotency-Key", Route{KeyHeaders: []string{"webhook-id"}, Accept: AcceptKey}.Published().Headers, []string{"Webhook-Id", KeyHeader})
	for _, row := range []struct {
		route Route
		want  string
	}{
		{Route{KeyFromBody: []string{"$.event.id"}}, `did you mean "/event/id"?`},
		{Route{KeyFromBody: []string{"#/event/id"}}, `did you mean "/event/id"?`},
		{Route{KeyFromBody: []string{"id"}}, `did you mean "/id"?`},
		{Route{KeyHeaders: []string{"A", "a"}}, `key header "a": given twice`},
		{Route{KeyHeaders: []string{"idempotency-token"}}, `or a token's`},
	} {
		expect.Contains(t, "Check", fmt.Sprint(row.route.Check()), row.want)
	}
}

// A proxy or a library may add an Idempotency-Key of its own to each attempt: it would be another
// operation each time.
func TestIdempotencyKeyIsNotTheKeyOfARouteThatHasItInThePayload(t *testing.T) {
	for _, row := range []struct {
		named []string
		runs  int
	}{{nil, 1}, {[]string{"webhook-id"}, 1}, {[]string{"idempotency-key"}, 3}} {
		deliver, runs := webhooks(t, Route{KeyFromBody: []string{"/id"}, KeyHeaders: row.named})
		for _, key := range []string{"a", "b", "c"} {
			expect.Equal(t, "status", deliver(`{"id":"evt_1"}`, KeyHeader+": "+key).Code, http.StatusAccepted)
		}
		expect.Equal(t, fmt.Sprintf("runs with the headers %q", row.named), *runs, row.runs)
	}
}

// Who sends what is no delivery hears which part of it is wrong, and its bound.
func TestDeliveryWithoutItsKeyNamesTheField(t *testing.T) {
	for _, row := range []struct {
		route   Route
		payload string
		header  string
		field   string
		detail  string
	}{
		{Route{KeyFromBody: []string{"/event/id"}}, `{}`, "X: y", "body/event/id", "the request has no key; this route takes Idempotency-Token or /event/id of the payload"},
		{Route{KeyFromBody: []string{"/event/id"}}, `{"event":{"id":{}}}`, "X: y", "body/event/id", "1 to 1024 bytes"},
		{Route{KeyFromBody: []string{"/id"}}, `id=1`, "X: y", "body/id", "is not JSON"},
		{Route{KeyFromBody: []string{"/id"}}, `{"id":"a"} and more`, "X: y", "body/id", "is not JSON"},
		{Route{KeyHeaders: []string{"webhook-id"}}, `{}`, "X: y", "Webhook-Id", "Webhook-Id or Idempotency-Key"},
		{Route{KeyHeaders: []string{"webhook-id"}}, `{}`, "Webhook-Id: " + strings.Repeat("x", 256), "Webhook-Id", "1 to 255 characters"},
	} {
		deliver, runs := webhooks(t, row.route)
		answer := deliver(row.payload, row.header).Body.String()
		expect.Contains(t, "the refusal of "+row.payload, answer, `"field":"`+row.field+`"`, row.detail)
		expect.Equal(t, "runs", *runs, 0)
	}
}
