package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// passUnguarded sends a request to the upstream that is not guarded. Who sends a key believes that
// it is, so that is counted by itself.
func (g *Gateway) passUnguarded(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = unguarded
	if hasKey(r) {
		x.outcome = unguardedKey
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

// refuseUnnamed answers an unsafe request that no route names.
func (g *Gateway) refuseUnnamed(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = routeUnknown
	g.unnamed.write(g.log, r, time.Now())
	detail := "No route of the gateway names " + r.Method + " " + r.URL.EscapedPath() +
		". Nothing was sent to the service behind the gateway. If the request is right, its operator writes a route into the routes " +
		`file: - match: "` + patternOf(r) + `", with {name} for a part that differs from request to request, and with ` +
		"guard: false if it may run twice."
	if r.Method == http.MethodPost && r.URL.Path == "/token" {
		detail += " The gateway issues no tokens: coatcheck serve does" + ", on the same Redis and prefix" + tokensAt(g.config.TokenService) + "."
	}
	g.writeProblem(w, r, api.NewProblem(api.RouteUnknown, detail))
}

// tokensAt says where clients find the service that issues tokens, if that is known.
func tokensAt(service string) string {
	if service == "" {
		return ""
	}
	return ", at " + service
}

// patternOf is the pattern of a request, and of no other one.
func patternOf(r *http.Request) string {
	path := strings.NewReplacer("/:", "/%3A", "*", "%2A").Replace(r.URL.EscapedPath())
	if strings.HasSuffix(path, "/") {
		path += "{$}" // a slash would name all below
	}
	return r.Method + " " + path
}

// unnamedWarning says which route is missing, once a minute. The zero value is ready.
type unnamedWarning struct{ next atomic.Int64 } // in nanoseconds since 1970

func (u *unnamedWarning) write(log *slog.Logger, r *http.Request, now time.Time) {
	next := u.next.Load()
	if now.UnixNano() >= next && u.next.CompareAndSwap(next, now.Add(time.Minute).UnixNano()) {
		log.LogAttrs(r.Context(), slog.LevelWarn, "a request was refused that no route names",
			slog.String("method", requestlog.Method(r.Method)), slog.String("shape", shapeOf(r.URL.Path)),
			slog.String("try", "a route in the routes file whose match has this method and path, with {name} for each {…}; guard: false if "+
				"it may run twice"))
	}
}

// plainWord is a segment of a path that is likely the same for all requests. Any other may be
// secret.
var plainWord = lazyregexp.New(`^[a-z][a-z_-]{0,19}$|^v[0-9]{1,2}$`)

// shapeOf is a path without what may differ from request to request.
func shapeOf(path string) string {
	segments := strings.SplitN(path, "/", 10)
	for i, segment := range segments {
		if segment != "" && !plainWord().MatchString(segment) {
			segments[i] = "{…}"
		}
	}
	return strings.Join(segments, "/")
}
