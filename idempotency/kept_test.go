package idempotency

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestOnlyTheHandlersHeadersAreRecorded(t *testing.T) {
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/1")
		w.Header().Add("Vary", "Accept")
	}}
	guarded := embeddedTokens(t).Middleware(Route{Name: "r"})(h)
	cors := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Vary", "Origin")
		guarded.ServeHTTP(w, r)
	})
	for i, origin := range []string{"https://a.example", "https://b.example"} {
		w := post(cors, "x", "Idempotency-Key: k", "Origin: "+origin)
		asked := fmt.Sprintf("request %d", i+1)
		wantReplayed(t, asked, w, i == 1)
		wantHeader(t, asked, w, "Access-Control-Allow-Origin", origin)
		wantHeader(t, asked, w, "Location", "/1")
		expect.Equal(t, asked+": header Vary", w.Header().Values("Vary"), []string{"Origin", "Accept"})
	}
	h.wantRuns(t, 1)
}

func TestHeadersOfAnAnswerAreBounded(t *testing.T) {
	for _, size := range []int{maxKeptHeader - 100, maxKeptHeader + 1} {
		h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", size))
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("paid"))
		}}
		tokens := embeddedTokens(t)
		guarded := tokens.Middleware(Route{Name: "r"})(h)
		first := post(guarded, "x", "Idempotency-Key: k")
		expect.Equal(t, "the first answer", statusAndBody(first), "201 paid")
		expect.Equal(t, "the large header of the first answer", len(first.Header().Get("X-Large")), size)
		again, body, large := post(guarded, "x", "Idempotency-Key: k"), "201 paid", size
		if size > maxKeptHeader {
			body, large = "201 ", 0
			wantHeader(t, "the answer again", again, "Idempotent-Body", "not-kept")
		}
		expect.Equal(t, "the answer again", statusAndBody(again), body)
		expect.Equal(t, "the large header of the answer again", len(again.Header().Get("X-Large")), large)
		h.wantRuns(t, 1)
	}
}

func TestMountsOfOneHandlerDoNotAnswerForEachOther(t *testing.T) {
	h := &handler{}
	within := http.NewServeMux()
	within.Handle("POST /pay", embeddedTokens(t).Middleware(Route{})(h))
	mux := http.NewServeMux()
	for _, mount := range []string{"/a", "/b"} {
		mux.Handle(mount+"/", http.StripPrefix(mount, within))
	}
	ask := func(target string) *httptest.ResponseRecorder {
		return serve(mux, httptest.NewRequest(http.MethodPost, target, strings.NewReader("x")), KeyHeader+": k")
	}
	wantReplayed(t, "the first mount", ask("/a/pay"), false)
	wantReplayed(t, "the first mount again", ask("/a/pay"), true)
	wantReplayed(t, "the first mount by its whole address", ask("http://example.com/a/pay"), true)
	wantCode(t, "the second mount", ask("/b/pay"), "idempotency-payload-mismatch")
	h.wantRuns(t, 1)
}

func TestHostTypeAndAcceptCountWhereTheRouteNamesThem(t *testing.T) {
	of := func(route Route, host string, headers ...string) string {
		r := httptest.NewRequest(http.MethodPost, "http://"+host+"/pay", strings.NewReader("x"))
		r.RequestURI = "/pay"
		addHeaders(r, headers)
		sum, err := takeBody(r, "r", route.WithDefaults())
		expect.Error(t, "the fingerprint", err, nil)
		return sum
	}
	all := Route{Headers: []string{"host", "Content-Type", "Accept"}}
	same, base := of(Route{}, "a.example"), of(all, "a.example")
	for name, other := range map[string]func(Route) string{
		"Host":         func(route Route) string { return of(route, "b.example") },
		"Content-Type": func(route Route) string { return of(route, "a.example", "Content-Type: text/plain") },
		"Accept":       func(route Route) string { return of(route, "a.example", "Accept: text/plain") },
	} {
		expect.Equal(t, "another "+name+" is the same request", other(Route{}) == same, true)
		expect.Equal(t, "another "+name+", of a route that names it, is the same request", other(all) == base, false)
	}
}

// A repeat reads a large answer only where there is room for it. One that is refused is answered
// later.
func TestLargeAnswerIsReadOnlyWhereThereIsRoom(t *testing.T) {
	full, asked := true, int64(0)
	noRoom := errors.New("no room")
	tokens := New(storetest.Open(t, redisstore.Config{}), Config{Reserve: func(_ context.Context, n int64) error {
		if asked = n; full {
			return noRoom
		}
		return nil
	}})
	t.Cleanup(func() { _ = tokens.Close(context.Background()) })
	const size = 200_000
	runs := 0
	guarded := tokens.Middleware(Route{Name: "r"})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	}))
	wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k"), 200)
	expect.Equal(t, "bytes that were asked for by the first request", asked, 0)
	w := post(guarded, "x", "Idempotency-Key: k")
	wantCode(t, "a repeat without room", w, api.StoreUnavailable)
	expect.Contains(t, "its problem", w.Body.String(), "no room")
	if asked < size {
		t.Errorf("room was asked for %d bytes, want %d or more", asked, size)
	}
	_, err := tokens.Claim(t.Context(), Key{Scope: "r", ID: "k"}, ClaimOptions{Fingerprint: "other", LeaseToken: strings.Repeat("o", 22)})
	expect.Error(t, "a claim of another request", err, ErrMismatch)
	full = false
	w = post(guarded, "x", "Idempotency-Key: k")
	wantStatus(t, "a repeat with room", w, 200)
	expect.Equal(t, "bytes of its answer", w.Body.Len(), size)
	expect.Equal(t, "runs of the handler", runs, 1)
}
