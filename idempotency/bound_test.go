package idempotency

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// 800 answers of nearly a mebibyte, of which the embedded store takes as many as it has room for:
// the rest does not begin, what was recorded is replayed, and the heap stays below the bound.
func TestStoredAnswersStayBelowTheBoundOfTheEmbeddedStore(t *testing.T) {
	const most = 24 << 20
	before := liveHeap()
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{MaxBytes: most, Timeout: time.Minute}))
	body := strings.Repeat("a", 800_000)
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }}
	guarded := tokens.Middleware(Route{Name: "r", Lease: time.Hour})(h)
	kept := 0
	for i := range 800 {
		answer := post(guarded, "x", KeyHeader+": k"+strconv.Itoa(i))
		if answer.Code == http.StatusOK {
			kept++
			continue
		}
		wantCode(t, "a request to a store that is full", answer, api.StoreUnavailable)
	}
	if kept < 20 || kept > 35 {
		t.Errorf("answers of %d bytes that were kept: got %d, want about %d", len(body), kept, most/len(body))
	}
	h.wantRuns(t, int64(kept))
	wantReplayed(t, "a repeat", post(guarded, "x", KeyHeader+": k1"), true)
	h.wantRuns(t, int64(kept))
	taken := liveHeap() - before
	t.Logf("%d answers, %d bytes of heap", kept, taken)
	expect.Equal(t, "heap below the bound and a tenth", taken < most*11/10, true)
	runtime.KeepAlive(tokens)
}

// liveHeap is what is in use after a collection.
func liveHeap() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
