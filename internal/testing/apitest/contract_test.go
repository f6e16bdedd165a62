package apitest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// spy is a test that others fail.
type spy struct {
	testing.TB

	faults []string
}

func (s *spy) Helper() {}

func (s *spy) Errorf(format string, values ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, values...))
}

// reply is an answer of a server that does as it is told.
type reply struct {
	status int
	header map[string]string
	body   string
}

func (r reply) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	for name, value := range r.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body)
}

// with is the same answer with another header; without a value it is left out.
func (r reply) with(name, value string) reply {
	r.header = maps.Clone(r.header)
	if r.header[name] = value; value == "" {
		delete(r.header, name)
	}
	return r
}

func (r reply) says(status int, body string) reply {
	r.status, r.body = status, body
	return r
}

var (
	json200  = reply{200, map[string]string{"X-Request-Id": "abc", "Cache-Control": "no-store", "Content-Type": "application/json"}, `{"key":"k","value":3,"first":3}`}
	problem  = reply{409, map[string]string{"X-Request-Id": "abc", "Cache-Control": "no-store", "Content-Type": "application/problem+json"}, overflow}
	nothing  = reply{204, map[string]string{"X-Request-Id": "abc", "Cache-Control": "no-store"}, ""}
	overflow = `{"type":"/problems/counter-overflow","title":"t","status":409,"detail":"d","instance":"urn:request:abc","code":"counter-overflow","retryable":false}`
)

// exchange is a request, what a server answers, and what is wrong with it: "" is nothing.
type exchange struct {
	name, method, target, body string
	answer                     reply
	fault                      string
}

var exchanges = []exchange{
	{"as documented", "POST", "/incr/k", "", json200, ""},
	{"by GET", "GET", "/incr/k?by=3", "", json200, ""},
	{"an encoded name", "GET", "/incr/%6b", "", json200, ""},
	{"another field", "POST", "/incr/k", "", json200.says(200, `{"key":"k","value":3,"first":3,"extra":1}`), "extra"},
	{"a field too few", "POST", "/incr/k", "", json200.says(200, `{"key":"k","value":3}`), "first"},
	{"a field of another type", "POST", "/incr/k", "", json200.says(200, `{"key":"k","value":"3","first":3}`), "/value"},
	{"beyond 64 bits", "POST", "/incr/k", "", json200.says(200, `{"key":"k","value":9223372036854775808,"first":3}`), "/value"},
	{"as large as 64 bits", "POST", "/incr/k", "", json200.says(200, `{"key":"k","value":9223372036854775807,"first":9223372036854775807}`), ""},
	{"no JSON", "POST", "/incr/k", "", json200.says(200, `{"key":`), "not JSON"},
	{"two documents", "POST", "/incr/k", "", json200.says(200, json200.body+json200.body), "not JSON"},
	{"another status", "POST", "/incr/k", "", json200.says(202, json200.body), "no such status"},
	{"a status of another operation", "POST", "/incr/k", "", json200.says(201, json200.body), "no such status"},
	{"another media type", "POST", "/incr/k", "", json200.with("Content-Type", "application/xml"), "media type"},
	{"a charset", "POST", "/incr/k", "", json200.with("Content-Type", "application/json; charset=utf-8"), "media type"},
	{"no media type", "POST", "/incr/k", "", json200.with("Content-Type", "").says(200, ""), "media type"},
	{"no request id", "POST", "/incr/k", "", json200.with("X-Request-Id", ""), "X-Request-Id is missing"},
	{"no Cache-Control", "POST", "/incr/k", "", json200.with("Cache-Control", ""), "Cache-Control is missing"},
	{"another header", "POST", "/incr/k", "", json200.with("Server", "x"), "Server is not in the document"},
	{"a header of another value", "POST", "/incr/k", "", json200.with("Cache-Control", "public"), "header Cache-Control"},
	{"a rate", "POST", "/incr/k", "", json200.with("RateLimit", `"principal";r=1;t=2`), ""},
	{"a rate that is none", "POST", "/incr/k", "", json200.with("RateLimit", "many"), "header Ratelimit"},
	{"text", "GET", "/incr/k", "", json200.with("Content-Type", "text/plain; charset=UTF-8").says(200, "12\n"), ""},
	{"text without an end", "GET", "/incr/k", "", json200.with("Content-Type", "text/plain; charset=UTF-8").says(200, "12"), "body"},
	{"a body where none belongs", "PUT", "/lock/l", "", nothing.says(204, ""), "no such status"},
	{"nothing", "DELETE", "/counter/k", "", nothing, ""},

	{"a problem", "POST", "/incr/k", "", problem, ""},
	{"a problem of another operation", "POST", "/incr/k", "", problem.says(409, strings.ReplaceAll(overflow, "counter-overflow", "lock-held")), "/code"},
	{"an unknown problem", "POST", "/incr/k", "", problem.says(409, strings.ReplaceAll(overflow, "counter-overflow", "made-up")), "/code"},
	{"a problem with more to tell", "POST", "/incr/k", "", problem.says(409, strings.Replace(overflow, "{", `{"more":1,`, 1)), "more"},
	{"a problem without a detail", "POST", "/incr/k", "", problem.says(409, strings.Replace(overflow, `"detail":"d",`, "", 1)), "detail"},
	{"a problem of another status", "POST", "/incr/k", "", problem.says(409, strings.Replace(overflow, "409", "410", 1)), "does not fit"},
	{"a problem of another request", "POST", "/incr/k", "", problem.with("X-Request-Id", "other"), "does not fit"},
	{"a problem as plain JSON", "POST", "/incr/k", "", problem.with("Content-Type", "application/json"), "media type"},
	{"a wait", "POST", "/lock/l", "", problem.with("Retry-After", "2").says(409, strings.ReplaceAll(overflow, "counter-overflow", "lock-held")), ""},
	{"a wait in words", "POST", "/lock/l", "", problem.with("Retry-After", "soon").says(409, strings.ReplaceAll(overflow, "counter-overflow", "lock-held")), "Retry-After"},
	{"a wait where there is none", "POST", "/incr/k", "", problem.with("Retry-After", "2"), "Retry-After is not in the document"},

	{"a query that is taken and not documented", "GET", "/incr/k?times=3", "", json200, "query parameter times"},
	{"a query out of bounds", "GET", "/incr/k?by=0", "", json200, "query parameter by"},
	{"a query of another type", "GET", "/incr/k?by=x", "", json200, "query parameter by"},
	{"a name that is none", "GET", "/incr/a%2Fb", "", json200, "path parameter key"},
	{"a body that is taken and not documented", "POST", "/incr/k", `{"by":3}`, json200, "request body"},
	{"a body that is missing", "PUT", "/counter/k", "", json200.says(200, `{"key":"k","value":3}`), "no body"},
	{"a header that is missing", "POST", "/token/t/release", "", nothing, "Lease-Token is missing"},
	{"a bad request that is refused", "GET", "/incr/k?times=3", "", problem, ""},

	{"an unknown path", "GET", "/nope", "", json200, "not in the document"},
	{"a path that is not there", "GET", "/nope", "", problem.says(404, strings.NewReplacer("counter-overflow", "not-found", "409", "404").Replace(overflow)), ""},
	{"a path that is not there, as another problem", "GET", "/nope", "", problem.says(404, strings.Replace(overflow, "409", "404", 1)), "/code"},
	{"a method that is answered", "PATCH", "/incr/k", "", json200, "not in the document"},
	{"a method that is refused", "PATCH", "/incr/k", "", problem.with("Allow", "GET").says(405, strings.NewReplacer("counter-overflow", "method-not-allowed", "409", "405").Replace(overflow)), ""},
	{"a method that is refused without saying which", "PATCH", "/incr/k", "", problem.says(405, strings.NewReplacer("counter-overflow", "method-not-allowed", "409", "405").Replace(overflow)), "Allow is missing"},
	{"a method of a door", "PATCH", "/api/segment/get/k", "", json200.with("Content-Type", "text/plain;charset=UTF-8").says(200, "12"), ""},
	{"a look at the head", "HEAD", "/livez", "", json200.says(200, ""), ""},
}

func TestExchangesAreComparedWithTheDocument(t *testing.T) {
	for _, row := range exchanges {
		t.Run(row.name, func(t *testing.T) {
			t.Run("handler", row.throughHandler)
			t.Run("round trip", row.throughRoundTrip)
		})
	}
}

func (row exchange) throughHandler(t *testing.T) {
	around := &spy{TB: t}
	w := httptest.NewRecorder()
	Handler(around, row.answer).ServeHTTP(w, httptest.NewRequest(row.method, row.target, strings.NewReader(row.body)))
	wantFault(t, "handler", around, row.fault)
	expect.Equal(t, row.method+" "+row.target+": status that came through", w.Code, row.answer.status)
	expect.Equal(t, row.method+" "+row.target+": body that came through", w.Body.String(), row.answer.body)
}

func (row exchange) throughRoundTrip(t *testing.T) {
	web := httptest.NewServer(row.answer)
	defer web.Close()
	between := &spy{TB: t}
	client := &http.Client{Transport: RoundTripper(between, web.Client().Transport)}
	request, err := http.NewRequestWithContext(t.Context(), row.method, web.URL+row.target, strings.NewReader(row.body))
	if err != nil {
		t.Fatalf("%s %s: %v", row.method, row.target, err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", row.method, row.target, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	expect.Error(t, row.method+" "+row.target+": reading the body", err, nil)
	expect.Equal(t, row.method+" "+row.target+": status that came through", response.StatusCode, row.answer.status)
	if row.method != http.MethodHead {
		expect.Equal(t, row.method+" "+row.target+": body that came through", string(body), row.answer.body)
	}
	if row.answer.with("Content-Type", "").header["Content-Type"] == row.answer.header["Content-Type"] && row.answer.status == 200 {
		return // net/http says a media type of its own where the server says none
	}
	wantFault(t, "round trip", between, row.fault)
}

func wantFault(t *testing.T, where string, s *spy, fault string) {
	t.Helper()
	switch {
	case fault == "" && len(s.faults) > 0:
		t.Errorf("%s: found the faults %q, want none", where, s.faults)
	case fault != "" && (len(s.faults) != 1 || !strings.Contains(s.faults[0], fault)):
		t.Errorf("%s: found the faults %q, want one with %q", where, s.faults, fault)
	}
}

func TestAPathOfTheTestsOwnIsLeftAloneAndOthersAreNot(t *testing.T) {
	own := func(path string) bool { return path == "/hook" || path == "/livez" }
	for target, faults := range map[string]int{"/hook": 0, "/hook?a=b": 0, "/other": 1, "/livez": 1} {
		around := &spy{TB: t}
		Handler(around, reply{418, nil, "a teapot"}, own).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
		if len(around.faults) != faults {
			t.Errorf("GET %s: found the faults %q, want %d", target, around.faults, faults)
		}
	}
}

func TestAnAnswerThatIsCutOffIsPassedOnCutOff(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range json200.header {
			w.Header().Set(name, value)
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"key":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer web.Close()
	between := &spy{TB: t}
	client := &http.Client{Transport: RoundTripper(between, web.Client().Transport)}
	response, err := client.Get(web.URL + "/incr/k")
	expect.NoError(t, "GET /incr/k", err)
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil || string(body) != `{"key":` {
		t.Errorf("GET /incr/k: got the body %q and error %v, want the beginning of the body and an error", body, err)
	}
	wantFault(t, "round trip", between, "")
}

func TestABodyThatIsSentWithoutItsLengthIsLookedAt(t *testing.T) {
	web := httptest.NewServer(json200)
	defer web.Close()
	between := &spy{TB: t}
	client := &http.Client{Transport: RoundTripper(between, web.Client().Transport)}
	response, err := client.Post(web.URL+"/incr/k", "", io.MultiReader(strings.NewReader(`{"by":3}`)))
	expect.NoError(t, "POST /incr/k", err)
	defer response.Body.Close()
	wantFault(t, "round trip", between, "request body")
}

func BenchmarkCheck(b *testing.B) {
	e := Exchange{Method: "POST", Target: "/incr/k?by=3", Header: http.Header{}, Status: 200, AnswerHeader: http.Header{}, Answer: []byte(json200.body)}
	for name, value := range json200.header {
		e.AnswerHeader.Set(name, value)
	}
	for b.Loop() {
		expect.NoError(b, "Check of the published contract", Published().Check(e))
	}
}
