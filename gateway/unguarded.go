package gateway

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// warnEvery is how often a log line tells of requests with a key that nothing guards.
const warnEvery = time.Minute

// unguardedWarning writes that line. The zero value is ready.
type unguardedWarning struct{ next atomic.Int64 } // in nanoseconds since 1970

// passUnguarded sends a request to the upstream that no route guards. Who sends a key believes that
// one does, so that is counted by itself.
func (g *Gateway) passUnguarded(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = unguarded
	if hasKey(r) {
		x.outcome = unguardedKey
		g.warning.write(g.log, r, time.Now())
	}
	g.passOn(w, r)
}

// hasKey reports whether a request that is not safe has a header that asks to run it once.
func hasKey(r *http.Request) bool {
	if muxpattern.IsSafe(r.Method) {
		return false
	}
	for _, name := range []string{idempotency.TokenHeader, idempotency.KeyHeader, "X-" + idempotency.KeyHeader} {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return false
}

func (u *unguardedWarning) write(log *slog.Logger, r *http.Request, now time.Time) {
	next := u.next.Load()
	if now.UnixNano() < next || !u.next.CompareAndSwap(next, now.Add(warnEvery).UnixNano()) {
		return
	}
	log.LogAttrs(r.Context(), slog.LevelWarn,
		"a request with an idempotency key was passed on unguarded: no route matches it, and repeated it runs again",
		slog.String("method", requestlog.Method(r.Method)), slog.String("shape", shapeOf(r.URL.Path)),
		slog.String("try", "a route in the routes file whose match has this method and path, with {name} for each {…}"))
}

// plainWord is a segment of a path that is likely the same for all requests. Any other may be
// secret.
var plainWord = regexp.MustCompile(`^[a-z][a-z_-]{0,19}$|^v[0-9]{1,2}$`)

// shapeOf is a path without what may differ from request to request.
func shapeOf(path string) string {
	segments := strings.SplitN(path, "/", 10)
	for i, segment := range segments {
		if segment != "" && !plainWord.MatchString(segment) {
			segments[i] = "{…}"
		}
	}
	return strings.Join(segments, "/")
}
