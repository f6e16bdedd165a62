package gateway

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Only what its Content-Type says is JSON is compared by value: of any other a repeat in other
// white space is another request, which gets no answer of the first and does not run.
func TestRepeatInOtherWhiteSpaceIsTheSameOnlyAsJSON(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, "routes: [{match: POST /payments, canonical_json: true}]")
	for key, row := range map[string]struct {
		types  []string
		repeat int
	}{
		"json":      {[]string{"Content-Type: application/json"}, 201},
		"none":      {nil, 422},
		"malformed": {[]string{"Content-Type: application/json; charset"}, 422},
		"text":      {[]string{"Content-Type: text/plain"}, 422},
		"twice":     {[]string{"Content-Type: application/json", "Content-Type: text/plain"}, 422},
		"utf-7":     {[]string{"Content-Type: application/json; charset=utf-7"}, 422},
	} {
		headers := slices.Concat(row.types, []string{"Idempotency-Key: " + key})
		expect.Equal(t, "status of the first as "+key, r.do("POST", "/payments", `{"amount": 1, "to": "a"}`, headers...).status, 201)
		expect.Equal(t, "status of a repeat in other white space as "+key, r.do("POST", "/payments", `{"to":"a","amount":1}`, headers...).status, row.repeat)
		expect.Equal(t, "status of the same again as "+key, r.do("POST", "/payments", `{"amount": 1, "to": "a"}`, headers...).status, 201)
	}
	upstream.wantPaid(t, 6)
}
