package gateway

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A service that refuses a form before it does anything says so, and the corrected form is taken
// under the same key.
func TestServiceSaysThatNothingHasBegun(t *testing.T) {
	for _, row := range []struct {
		status int
		says   string
		then   int // with a corrected form
		runs   int64
	}{
		{422, "true", 201, 2},
		{400, "true", 201, 2},
		{503, "true", 201, 2},
		{422, "", 422, 1},
		{422, "false", 422, 1},
		{200, "true", 422, 1},
	} {
		t.Run(strconv.Itoa(row.status)+" "+row.says, func(t *testing.T) {
			first := true
			upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
				if !first {
					w.WriteHeader(http.StatusCreated)
					return
				}
				first = false
				if row.says != "" {
					w.Header().Set(idempotency.NotBegunHeader, row.says)
				}
				w.WriteHeader(row.status)
			})
			r := start(t, upstream.URL, payments)
			refused := r.do("POST", "/payments", "wrong", "Idempotency-Key: k")
			r.wantStatus(refused, row.status)
			expect.Equal(t, "the header at the client", refused.header.Get(idempotency.NotBegunHeader), "")
			r.wantStatus(r.do("POST", "/payments", "right", "Idempotency-Key: k"), row.then)
			upstream.wantPaid(t, row.runs)
		})
	}
}
