package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
)

// chunked sends a body whose length no header says.
func (r *rig) chunked(body string, headers ...string) answer {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/payments", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		r.t.Fatal(err) // names the URL
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := r.client.Do(request)
	asked := describe("POST in chunks", "/payments", headers)
	if err != nil {
		r.t.Fatalf("%s: %v", asked, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatalf("%s: reading the answer: %v", asked, err)
	}
	return answer{asked, response.StatusCode, response.Header, string(text), response.Trailer}
}

// An optional route bounds every body alike: that of a request that passes unguarded as well, and
// whether its length is known or not.
func TestBodyOnAnOptionalRouteIsBoundedWithAndWithoutAKey(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	})
	r := start(t, upstream.URL, `routes: [{match: POST /payments, required: false, max_body_bytes: 10}]`)
	const atLimit, over = "0123456789", "01234567890"
	r.wantCode(r.do("POST", "/payments", over), api.PayloadTooLarge)
	r.wantCode(r.do("POST", "/payments", over, "Idempotency-Key: a"), api.PayloadTooLarge)
	r.wantCode(r.chunked(over, "Idempotency-Key: b"), api.PayloadTooLarge)
	upstream.wantPaid(t, 0)
	// its beginning may be on its way to the upstream when it grows too long
	r.wantCode(r.chunked(over), api.PayloadTooLarge)
	for _, a := range []answer{
		r.do("POST", "/payments", atLimit), r.chunked(atLimit),
		r.do("POST", "/payments", atLimit, "Idempotency-Key: a"), r.chunked(atLimit, "Idempotency-Key: b"),
	} {
		r.wantPaid(a, atLimit, false)
	}
}
