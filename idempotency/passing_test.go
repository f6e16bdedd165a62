package idempotency

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestHeaderThatTheRouteDoesNotTakeIsRefused(t *testing.T) {
	for accept, other := range map[Accept]string{AcceptToken: KeyHeader, AcceptKey: TokenHeader} {
		for _, optional := range []bool{false, true} {
			h := &handler{}
			tokens := embeddedTokens(t)
			taken := Route{Accept: accept}.headers()[0] + ": " + issuedToken(t, tokens)
			guarded := tokens.Middleware(Route{Name: "r", Accept: accept, Optional: optional})(h)
			for range 2 {
				w := post(guarded, "x", other+": k")
				wantCode(t, "a request with "+other, w, api.KeyMalformed)
				expect.Contains(t, "the answer", w.Body.String(), Route{Accept: accept}.headers()[0]+", not "+other)
				wantCode(t, "a request with both", post(guarded, "x", other+": k", taken), api.KeyMalformed)
			}
			h.wantRuns(t, 0)
			passing := tokens.Middleware(Route{Name: "r", Accept: accept, Optional: optional, PassOther: true})(h)
			wantStatus(t, "a request with both that may", post(passing, "x", other+": k", taken), 201)
			h.wantRuns(t, 1)
			if optional {
				wantStatus(t, "a request with the other one that may", post(passing, "x", other+": k"), 201)
				h.wantRuns(t, 2)
			}
		}
	}
}

func TestBodyThatPassesUnguardedIsBounded(t *testing.T) {
	var read error
	h := &handler{serve: func(_ http.ResponseWriter, r *http.Request) { _, read = io.ReadAll(r.Body) }}
	guarded := embeddedTokens(t).Middleware(Route{Optional: true, MaxBody: 10})(h)
	wantCode(t, "a body over the limit", post(guarded, "eleven byte"), api.PayloadTooLarge)
	h.wantRuns(t, 0)
	for body, tooLarge := range map[string]bool{"ten bytes.": false, "eleven byte": true} {
		// of unknown length
		r := httptest.NewRequest(http.MethodPost, "/pay", io.MultiReader(strings.NewReader(body)))
		guarded.ServeHTTP(httptest.NewRecorder(), r)
		_, is := errors.AsType[*http.MaxBytesError](read)
		expect.Equal(t, "whether "+body+" is too large", is, tooLarge)
	}
}

func TestSafeMethodsPassWhereTheRouteSaysSo(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPost, http.MethodDelete} {
		for _, passes := range []bool{false, true} {
			h := &handler{}
			w := httptest.NewRecorder()
			embeddedTokens(t).Middleware(Route{PassSafe: passes})(h).ServeHTTP(w, httptest.NewRequest(method, "/pay", http.NoBody))
			want := http.StatusBadRequest
			if passes && method != http.MethodPost && method != http.MethodDelete {
				want = http.StatusCreated
			}
			expect.Equal(t, method+" without a header", w.Code, want)
		}
	}
}

func TestLeaseThatIsNoneAbandonsNothing(t *testing.T) {
	tokens := embeddedTokens(t)
	key := issue(t, tokens, "")
	grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	for _, lease := range []time.Duration{1, time.Millisecond - 1, -1, -time.Hour, MinLease - 1, MaxLease + 1} {
		if _, err := tokens.Extend(t.Context(), key, grant.LeaseToken, lease); err == nil {
			t.Errorf("Extend by %v: got no error", lease)
		}
		wantState(t, tokens, key, StateClaimed)
	}
}
