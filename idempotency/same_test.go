package idempotency

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// onNet is a server of net/http around a handler, which adds what it does by itself.
func onNet(t *testing.T, guarded http.Handler) (ask func(method string, headers ...string) (status int, header http.Header, body string)) {
	t.Helper()
	web := httptest.NewServer(guarded)
	t.Cleanup(web.Close)
	return func(method string, headers ...string) (int, http.Header, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, web.URL+"/pay", http.NoBody)
		expect.Error(t, "making a request", err, nil)
		addHeaders(request, headers)
		answer, err := web.Client().Do(request)
		expect.NoError(t, method, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		expect.Error(t, "reading the answer", err, nil)
		return answer.StatusCode, answer.Header, string(body)
	}
}

// What net/http adds by a look at the bytes is no part of an answer, neither of the first one nor
// of its replay; what the handler or middleware around it sets is part of both.
func TestTypeOfAnAnswerIsTheHandlersAndNeverGuessed(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><script>alert(1)</script>"
	write := func(w http.ResponseWriter) { _, _ = io.WriteString(w, page) }
	for name, row := range map[string]struct {
		outer string // set around the guard
		serve http.HandlerFunc
		want  []string
		limit int
	}{
		"none":              {serve: func(w http.ResponseWriter, _ *http.Request) { write(w) }},
		"nil":               {serve: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; write(w) }},
		"empty list":        {serve: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = []string{}; write(w) }},
		"empty":             {serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", ""); write(w) }, want: []string{""}},
		"set":               {serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "a/b"); write(w) }, want: []string{"a/b"}},
		"outer":             {outer: "o/o", serve: func(w http.ResponseWriter, _ *http.Request) { write(w) }, want: []string{"o/o"}},
		"outer, then nil":   {outer: "o/o", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; write(w) }},
		"outer, then gone":  {outer: "o/o", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("Content-Type"); write(w) }},
		"outer, then other": {outer: "o/o", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "a/b"); write(w) }, want: []string{"a/b"}},
		"an error":          {serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity); write(w) }},
		"not recorded":      {serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized); write(w) }},
		"over the limit":    {limit: 3, serve: func(w http.ResponseWriter, _ *http.Request) { write(w) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{})
			guarded := tokens.Middleware(Route{MaxAnswer: row.limit})(row.serve)
			ask := onNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if row.outer != "" {
					w.Header().Set("Content-Type", row.outer)
				}
				guarded.ServeHTTP(w, r)
			}))
			for _, which := range []string{"the first answer", "its replay"} {
				status, header, body := ask("POST", "Idempotency-Key: k")
				expect.Equal(t, "Content-Type of "+which, header["Content-Type"], row.want, cmpopts.EquateEmpty())
				if row.limit == 0 {
					expect.Equal(t, "body of "+which, body, page)
				}
				if status == 0 {
					t.Errorf("%s has no status", which)
				}
			}
		})
	}
}

// A header that middleware sets and the handler removes is in neither answer.
func TestHeaderThatTheHandlerRemovesStaysRemoved(t *testing.T) {
	t.Parallel()
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{})
	guarded := tokens.Middleware(Route{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("X-Frame-Options") }))
	ask := onNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Vary", "Origin")
		guarded.ServeHTTP(w, r)
	}))
	for _, which := range []string{"the first answer", "its replay"} {
		_, header, _ := ask("POST", "Idempotency-Key: k")
		expect.Equal(t, which+": the header that was removed", header.Get("X-Frame-Options"), "")
		expect.Equal(t, which+": the one that was not", header.Get("Vary"), "Origin")
	}
}

// An answer that is shorter than it says is none: no client could read it, and it is never replayed
// as if it were whole.
func TestAnswerShorterThanAnnouncedIsInDoubt(t *testing.T) {
	t.Parallel()
	announce := func(length string, written ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", length)
			for _, text := range written {
				_, _ = io.WriteString(w, text)
			}
		}
	}
	for name, row := range map[string]struct {
		method string
		serve  http.HandlerFunc
		status int
		body   string
		doubt  bool
	}{
		"24 of 100":           {"POST", announce("100", strings.Repeat("x", 24)), 503, "", true},
		"nothing of 100":      {"POST", announce("100"), 503, "", true},
		"100 of 100":          {"POST", announce("4", "pa", "id"), 200, "paid", false},
		"none of 0":           {"POST", announce("0"), 200, "", false},
		"more than announced": {"POST", announce("4", "paid", "twice"), 200, "paid", false},
		"all of it too much":  {"POST", announce("3", "paid"), 503, "", true},
		"a length that is no": {"POST", announce("four", "paid"), 200, "paid", false},
		"a length below 0":    {"POST", announce("-1", "paid"), 200, "paid", false},
		"HEAD":                {"HEAD", announce("100"), 200, "", false},
		"304": {"POST", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusNotModified)
		}, 304, "", false},
		"an error, cut short": {"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "x")
		}, 503, "", true},
		"a file, as it is": {"POST", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "f", time.Time{}, strings.NewReader("paid"))
		}, 200, "paid", false},
		"what copies from one": {"POST", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.Copy(w, strings.NewReader("paid"))
		}, 200, "paid", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{})
			h := &handler{serve: row.serve}
			ask := onNet(t, tokens.Middleware(Route{})(h))
			status, _, body := ask(row.method, "Idempotency-Key: k")
			expect.Equal(t, "status of the first answer", status, row.status)
			again, header, replayed := ask(row.method, "Idempotency-Key: k", "If-None-Match: *")
			if row.doubt {
				expect.Contains(t, "the first answer", body, string(api.OutcomeUnknown))
				expect.Contains(t, "the answer to a repeat", replayed, string(api.IdempotencyUnknown))
			} else {
				expect.Equal(t, "body of the first answer", body, row.body)
				expect.Equal(t, "status of the replay", again, row.status)
				expect.Equal(t, "body of the replay", replayed, row.body)
				expect.Equal(t, "the replay says so", header.Get("Idempotent-Replayed"), "true")
			}
			h.wantRuns(t, 1)
		})
	}
}

// A handler is told, as net/http tells it, that it has written more than it announced.
func TestHandlerIsToldThatItWritesMoreThanAnnounced(t *testing.T) {
	t.Parallel()
	tokens := newTokensWith(t, storetest.Open(t, redisstore.Config{}), Config{})
	var got error
	post(tokens.Middleware(Route{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, got = io.WriteString(w, "paid")
	})), "pay", "Idempotency-Key: k")
	expect.Error(t, "writing 4 bytes of 3", got, http.ErrContentLength)
}
