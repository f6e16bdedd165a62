package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// hooks are routes whose senders have keys of their own.
const hooks = `routes:
  - {match: POST /github, key_header: X-GitHub-Delivery}
  - {match: POST /any, key_header: [webhook-id, X-GitHub-Delivery], required: false}
  - {match: POST /stripe, accept: key, key_from_body: /event/id, max_body_bytes: 100, keep: [2xx]}
`

func TestWebhooksRunOnceBySendersKeys(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, hooks)
	for i := range 3 {
		r.wantPaid(r.do("POST", "/github", "x", "X-Github-Delivery: g"), "paid 1", i > 0)
		r.wantPaid(r.do("POST", "/any", "x", "Webhook-Id: w"), "paid 2", i > 0)
		r.wantPaid(r.do("POST", "/stripe", `{"event":{"id":"e"}}`, "Idempotency-Key: "+fmt.Sprint(i)), "paid 3", i > 0)
	}
	upstream.wantPaid(t, 3)
	expect.Contains(t, "the policy", r.do("GET", "/idempotency-policy", "").body, `"Webhook-Id","X-Github-Delivery"`, `"key_from_body":["/event/id"]`)
}

func TestDeliveryWithoutASendersKeyIsCountedAndToldWhereItBelongs(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, hooks)
	r.wantPaid(r.do("POST", "/any", "x"), "paid 1", false)
	for _, row := range []struct{ path, body, field string }{
		{"/github", "x", "X-Github-Delivery"}, {"/stripe", "{}", "body/event/id"},
	} {
		a := r.do("POST", row.path, row.body)
		r.wantCode(a, api.KeyMissing)
		expect.Equal(t, row.path+": field", a.problem().Field, row.field)
		expect.Equal(t, row.path+": see", a.problem().See, policyPath)
	}
	r.wantCode(r.do("POST", "/stripe", "{"), api.KeyMalformed)
	r.wantCode(r.do("POST", "/stripe", `{"event":{"id":"`+strings.Repeat("e", 100)+`"}}`), api.PayloadTooLarge)
	for _, outcome := range []string{"outcome=unguarded ", "outcome=key_error", "outcome=bad_request"} {
		expect.Eventually(t, outcome+"in the log", func() bool { return logged(r, outcome) })
	}
	upstream.wantPaid(t, 1)
}

func TestKeysOfARoutesFileWithFaults(t *testing.T) {
	for text, want := range map[string]string{
		"key_header: []":                              "key_header: a list of 1 to 100 entries",
		"key_header: ''":                              "key_header: a word, or a list of 1 to 100 words",
		"key_header: {a: b}":                          "key_header: a word, or a list of 1 to 100 words",
		"key_header: 'a b'":                           `header "a b": not a header's name`,
		"key_header: [A, a]":                          `key header "a": given twice`,
		"key_header: Idempotency-Token":               "or a token's",
		"key_header: X, accept: token":                "takes keys",
		"key_from_body: 5":                            "key_from_body: a word, or a list of 1 to 100 words",
		"key_from_body: [/id, /id]":                   `key from body "/id": given twice`,
		"key_from_body: $.event.id":                   `did you mean "/event/id"?`,
		"key_from_body: /" + strings.Repeat("x", 255): "1 to 200 characters",
	} {
		_, err := ParseRoutes([]byte("routes:\n  - {match: /a, " + text + "}"))
		expect.Contains(t, "ParseRoutes with "+text, fmt.Sprint(err), "line 2: ", want)
	}
}

// A retention below and above a day begins with the answer, whether or not the caller has a name.
func TestAnswerAtTheGatewayStaysForTheRoutesRetention(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{time.Minute, 48 * time.Hour} {
		for _, caller := range [][]string{nil, {"Authorization: Bearer ann"}} {
			var operation atomic.Value
			upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
				operation.Store(r.Header.Get(idempotency.OperationHeader))
				w.WriteHeader(http.StatusCreated)
			})
			r := start(t, upstream.URL, fmt.Sprintf("routes: [{match: POST /payments, retention_ms: %d}]", retention.Milliseconds()))
			before := time.Now().Add(-time.Second)
			r.wantStatus(r.do("POST", "/payments", "x", append(caller, "Idempotency-Key: k")...), http.StatusCreated)
			after := time.Now().Add(time.Second)
			shown, err := r.g.tokens.Operation(t.Context(), operation.Load().(string))
			expect.NoError(t, "Operation", err)
			if begins := shown.ExpiresAt.Add(-retention); begins.Before(before) || begins.After(after) {
				t.Errorf("an answer for %v, given between %v and %v: got an end at %v", retention, before, after, shown.ExpiresAt)
			}
		}
	}
}
