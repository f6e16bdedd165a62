package gateway

import (
	"io"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/api"
)

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
	r.wantCode(r.do("POST", "/payments", over, chunked, "Idempotency-Key: b"), api.PayloadTooLarge)
	upstream.wantPaid(t, 0)
	// its beginning may be on its way to the upstream when it grows too long
	r.wantCode(r.do("POST", "/payments", over, chunked), api.PayloadTooLarge)
	for _, a := range []answer{
		r.do("POST", "/payments", atLimit), r.do("POST", "/payments", atLimit, chunked),
		r.do("POST", "/payments", atLimit, "Idempotency-Key: a"), r.do("POST", "/payments", atLimit, chunked, "Idempotency-Key: b"),
	} {
		r.wantPaid(a, atLimit, false)
	}
}
