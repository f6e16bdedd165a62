package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const formType = "Content-Type: application/x-www-form-urlencoded"

// A service that is asked to run another method runs one that no route may have named, whether the
// request is guarded or not, and wherever in its body the field is.
func TestServiceNeverGetsTheFieldThatNamesAnotherMethod(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var came []string
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // as far as it comes
		mu.Lock()
		came = append(came, string(body))
		mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	})
	r := start(t, upstream.URL, `{unmatched: pass, routes: [{match: POST /guarded}, {match: POST /open, guard: false},
		{match: POST /optional, required: false}, {match: POST /rails, method_field: true, guard: false}]}`)
	const json, parts = "Content-Type: application/json", "Content-Type: multipart/form-data; boundary=b"
	long := strings.Repeat("a=1&", 200_000)
	for i, row := range []struct{ body, header string }{
		{"_method=delete", formType}, {long + "_method=delete", formType}, {long + "%5Fmethod=delete", formType}, {"_method=delete", "X: y"}, {long + "_method=delete", "X: y"},
		{`{"a": "` + long + `", "_method": "delete"}`, json}, {`{"a": "` + long + `", "\u005fmeth\u006fd" : "delete"}`, json},
		{"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + long + "\r\n--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\ndelete\r\n--b--\r\n", parts},
	} {
		for _, path := range []string{"/guarded", "/open", "/optional", "/none"} {
			for _, length := range []string{"A: b", chunked} {
				a := r.do("POST", path, row.body, row.header, length, fmt.Sprintf("Idempotency-Key: %d%s-%d", i, path, len(length)))
				r.wantCode(a, api.InvalidRequest)
				expect.Equal(t, "field of the problem of "+path, a.problem().Field, "_method")
				if path != "/guarded" {
					a := r.do("POST", path, row.body, row.header, length)
					r.wantCode(a, api.InvalidRequest)
				}
			}
		}
	}
	r.wantStatus(r.do("POST", "/rails", "_method=delete", formType), http.StatusCreated)
	r.wantStatus(r.do("POST", "/open", long+"b=2", formType), http.StatusCreated)
	mu.Lock()
	defer mu.Unlock()
	whole := 0
	for _, body := range came {
		if strings.Contains(body, "_method=") || strings.Contains(body, `"_method"`) || strings.Contains(body, "%5Fmethod=") || strings.Contains(body, `meth\u006fd" :`) {
			whole++
		}
	}
	expect.Equal(t, "bodies with the field that the service got, beside that of the route that allows it", whole, 1)
}
