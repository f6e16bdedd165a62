package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
		{503, "TRUE", 201, 2},
		{502, "1", 201, 2},
		{504, "?1", 201, 2},
		{200, "true", 201, 2},
		{422, "", 422, 1},
		{422, "false", 422, 1},
		{422, "?0", 422, 1},
		{422, "yes", 422, 1},
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
			expect.Equal(t, "whether the log says that the header has another value",
				strings.Contains(r.log.String(), "frees no key"), row.says == "yes")
		})
	}
}

// Proxies and frameworks answer 408, 502, 503 and 504 while the work may run on: nobody knows, and
// the operation is listed. All other statuses are the answer. A route says otherwise.
func TestStatusOfTheServiceDecidesWhatIsRecorded(t *testing.T) {
	const routes = `routes:
  - {match: POST /default}
  - {match: POST /frees, frees: [401, 429, 503]}
  - {match: POST /keeps, keep: [2xx, 3xx, 4xx, 5xx, 503], doubts: []}
  - {match: POST /doubts, doubts: [5xx]}`
	for _, row := range []struct {
		path          string
		status, again int
		runs          int64
	}{
		{"/default", 401, 401, 1}, {"/default", 403, 403, 1}, {"/default", 429, 429, 1}, {"/default", 500, 500, 1}, {"/default", 307, 307, 1},
		{"/default", 408, 409, 1}, {"/default", 502, 409, 1}, {"/default", 503, 409, 1}, {"/default", 504, 409, 1},
		{"/frees", 401, 401, 2}, {"/frees", 429, 429, 2}, {"/frees", 503, 503, 2}, {"/frees", 403, 403, 1}, {"/frees", 504, 409, 1},
		{"/keeps", 408, 408, 1}, {"/keeps", 503, 503, 1},
		{"/doubts", 500, 409, 1}, {"/doubts", 408, 408, 1},
	} {
		t.Run(fmt.Sprint(row.path, " ", row.status), func(t *testing.T) {
			upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(row.status) })
			r := serve(t, upstream.URL, routes)
			r.wantStatus(r.do("POST", row.path, "x", "Idempotency-Key: k"), row.status)
			r.wantStatus(r.do("POST", row.path, "x", "Idempotency-Key: k"), row.again)
			upstream.wantPaid(t, row.runs)
			doubted := 0
			if row.again == http.StatusConflict {
				doubted = 1
			}
			r.wantMetrics(fmt.Sprintf(`coatcheck_gateway_upstream_failures_total{kind="status"} %d`, doubted))
			r.wantEnd()
		})
	}
}
