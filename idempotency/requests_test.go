package idempotency

import (
	"bytes"
	"context"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// form is a multipart body with a file.
func form(t *testing.T, boundary, content string) (body, contentType string) {
	t.Helper()
	var buffer bytes.Buffer
	w := multipart.NewWriter(&buffer)
	expect.Error(t, "setting the form's boundary", w.SetBoundary(boundary), nil)
	file, err := w.CreateFormFile("receipt", "receipt.txt")
	expect.NoError(t, "making the form", err)
	_, err = file.Write([]byte(content))
	expect.Error(t, "writing the form", err, nil)
	expect.Error(t, "ending the form", w.Close(), nil)
	return buffer.String(), "Content-Type: " + w.FormDataContentType()
}

func TestMultipartBodyIsGuarded(t *testing.T) {
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("receipt")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = file.Close() }() // in memory
		w.WriteHeader(http.StatusCreated)
	}}
	guarded := embeddedTokens(t).Middleware(Route{Name: "r", MaxBody: 10_000})(h)
	body, contentType := form(t, "one", strings.Repeat("x", 5000))
	for range 2 {
		wantStatus(t, "a form", post(guarded, body, contentType, "Idempotency-Key: k"), 201)
	}
	other, contentType := form(t, "one", strings.Repeat("y", 5000))
	wantCode(t, "a form with another file", post(guarded, other, contentType, "Idempotency-Key: k"), api.PayloadMismatch)
	large, contentType := form(t, "one", strings.Repeat("x", 10_000))
	wantCode(t, "a form over the limit", post(guarded, large, contentType, "Idempotency-Key: k2"), api.PayloadTooLarge)
	h.wantRuns(t, 1)
}

// A refusal changes nothing: the same request is refused alike, and the right one still does what
// it would have done.
func TestRefusedRequestIsRefusedAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		h := &handler{}
		guarded := newTokens(t, store).Middleware(Route{Name: "r", MaxBody: 10})(h)
		post(guarded, "paid", "Idempotency-Key: used")
		for name, row := range map[string]struct {
			body    string
			headers []string
			code    api.Code
		}{
			"missing":   {"x", nil, api.KeyMissing},
			"malformed": {"x", []string{`Idempotency-Key: "k`}, api.KeyMalformed},
			"two":       {"x", []string{"Idempotency-Key: k", "Idempotency-Key: k"}, api.KeyMalformed},
			"mismatch":  {"x", []string{"Idempotency-Key: used"}, api.PayloadMismatch},
			"too large": {strings.Repeat("x", 11), []string{"Idempotency-Key: k"}, api.PayloadTooLarge},
			"unknown":   {"x", []string{"Idempotency-Token: k"}, api.TokenUnknown},
		} {
			for range 3 {
				wantCode(t, name, post(guarded, row.body, row.headers...), row.code)
			}
		}
		w := post(guarded, "x", "Idempotency-Key: k")
		wantStatus(t, "the right request afterwards", w, 201)
		wantReplayed(t, "the right request afterwards", w, false)
		h.wantRuns(t, 2)
	})
}

func TestHeaderPrincipalDistinguishesCredentials(t *testing.T) {
	request := func(headers ...string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		addHeaders(r, headers)
		return r
	}
	by := func(headers ...string) func(*http.Request) string {
		of := HeaderPrincipal(headers...)
		return func(r *http.Request) string {
			who, err := of(r)
			expect.Error(t, "HeaderPrincipal", err, nil)
			return who
		}
	}
	principal := by("Authorization", "X-User")
	seen := map[string]string{}
	for name, r := range map[string]*http.Request{
		"nobody": request(), "alice": request("Authorization: Bearer a"), "bob": request("Authorization: Bearer b"), "user": request("X-User: Bearer a"),
		"both": request("Authorization: Bearer a", "X-User: 1"), "twice": request("Authorization: Bearer a", "Authorization: Bearer a"),
		"a name as value": request("Authorization: X-User"), "a name as other value": request("X-User: X-User"),
	} {
		p := principal(r)
		if before, ok := seen[p]; ok {
			t.Errorf("%s and %s are one principal", name, before)
		}
		seen[p] = name
		if strings.Contains(p, "Bearer") || principal(r) != p {
			t.Errorf("the principal of %s: got %q, want always the same, which does not hold the credential", name, p)
		}
	}
	expect.Equal(t, "the principal by names in small letters", by("authorization", "x-user")(request("X-User: 1")), principal(request("X-User: 1")))
	byHost, other := by("Host"), request()
	other.Host = "other.example"
	expect.Equal(t, "callers under two hosts are one principal", byHost(request()) == byHost(other), false)
	expect.Equal(t, "the principal of a request without the headers", principal(request("Other: x")), "")
	expect.Equal(t, "the principal beside an empty header", principal(request("Authorization: ", "X-User: 1")), principal(request("X-User: 1")))
	expect.Equal(t, "the principal by no headers", by()(request("Authorization: x")), "")
}

// A retention is the route's own, also where it is shorter than the lease, and begins with the
// answer. What has no answer stays for 30 days.
func TestAnswerStaysForTheRoutesRetentionAndNoLonger(t *testing.T) {
	for name, row := range map[string]struct {
		serve            http.HandlerFunc
		retention, stays time.Duration
	}{
		"answered":        {func(http.ResponseWriter, *http.Request) {}, time.Second, time.Second},
		"beyond a day":    {func(http.ResponseWriter, *http.Request) {}, 48 * time.Hour, 48 * time.Hour},
		"in doubt":        {func(_ http.ResponseWriter, r *http.Request) { attemptOf(r).Abandon() }, time.Second, MinKeepOpen},
		"with heartbeats": {func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) }, time.Second, time.Second},
	} {
		for _, principal := range []string{"", "ann"} {
			t.Run(name+" "+principal, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &handler{serve: row.serve}
					caller := func(*http.Request) (string, error) { return principal, nil }
					guarded := embeddedTokens(t).Middleware(Route{Name: "r", Lease: 10 * time.Second, Retention: row.retention, Principal: caller})(h)
					post(guarded, "x", "Idempotency-Key: k")
					time.Sleep(row.stays - 100*time.Millisecond)
					post(guarded, "x", "Idempotency-Key: k")
					h.wantRuns(t, 1)
					time.Sleep(200 * time.Millisecond)
					post(guarded, "x", "Idempotency-Key: k")
					h.wantRuns(t, 2)
				})
			})
		}
	}
}

func TestResultOfDoStaysForItsRetention(t *testing.T) {
	for _, retention := range []time.Duration{time.Second, 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			tokens, runs := embeddedTokens(t), 0
			do := func(want int) {
				t.Helper()
				_, err := tokens.Do(t.Context(), Key{ID: "k"}, ClaimOptions{Retention: retention}, func(context.Context, *Attempt) ([]byte, error) {
					runs++
					return nil, nil
				})
				expect.NoError(t, "Do", err)
				expect.Equal(t, "runs", runs, want)
			}
			do(1)
			time.Sleep(retention - 100*time.Millisecond)
			do(1)
			time.Sleep(200 * time.Millisecond)
			do(2)
		})
	}
}

// An overtaken attempt that calls Release has nothing to give back, and nothing is retried.
func TestOvertakenAttemptGivesNothingBack(t *testing.T) {
	tokens := embeddedTokens(t)
	var guarded http.Handler
	h := &handler{}
	h.serve = func(_ http.ResponseWriter, r *http.Request) {
		attempt, _ := FromContext(r.Context())
		if attempt.Number == 1 {
			lapse(t, tokens, tokens.keys(Key{Scope: "r", ID: "k"})[0])
			post(guarded, "x", "Idempotency-Key: k")
		}
		attempt.Release()
	}
	guarded = tokens.Middleware(Route{Name: "r", Policy: PolicyTakeover})(h)
	post(guarded, "x", "Idempotency-Key: k")
	h.wantRuns(t, 2)
	_, claims := tokens.Backlogs()
	expect.Equal(t, "claims that are still to be given back", claims, Backlog{Kind: "claim"})
}

// A route that takes bodies of any size, as it is often written, hands them to the handler.
func TestBodyOfARouteWithTheLargestBoundArrives(t *testing.T) {
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }}
	guarded := embeddedTokens(t).Middleware(Route{Name: "r", MaxBody: math.MaxInt64})(h)
	expect.Equal(t, "the first request", statusAndBody(post(guarded, "pay 10", KeyHeader+": k")), "200 pay 10")
	wantCode(t, "a request with another body", post(guarded, "pay 20", KeyHeader+": k"), api.PayloadMismatch)
}

// All forms would be the same to a guard that finds an empty body.
func TestBodyThatWasReadBeforeTheGuardIsRefused(t *testing.T) {
	h := &handler{}
	guarded := embeddedTokens(t).Middleware(Route{Name: "r"})(h)
	reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.PostFormValue("csrf")
		guarded.ServeHTTP(w, r)
	})
	for body, length := range map[string]int64{"amount=10": 9, "amount=99": -1} {
		request := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
		request.ContentLength = length
		request.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, KeyHeader: {"k"}}
		w := httptest.NewRecorder()
		reads.ServeHTTP(w, request)
		wantCode(t, "the form "+body, w, api.InvalidRequest)
		expect.Contains(t, "its problem", w.Body.String(), `"field":"body"`, "read before the guard")
	}
	h.wantRuns(t, 0)
}
