package server

import (
	"context"
	"net/http"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// Admin is the service's own side, for a listener that clients do not reach: /livez, /readyz and
// /metrics, which ask for no key here, and what [Config].Debug has at /debug/. The service's own
// listener has them by its own rules: there /metrics takes the role read, and nothing is at
// /debug/. It refuses requests that a page may have had a browser send: those of other origins, and
// those under another name than localhost, an address or one of [Config].AllowedHosts.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", s.echo)
	mux.Handle("GET /readyz", onAdminSide(s.echo))
	mux.Handle("GET /metrics", s.metrics.Handler())
	if s.config.Debug != nil {
		mux.Handle("/debug/", s.config.Debug)
	}
	return frontdoor.ForOperators(s.allowedHosts, mux)
}

type adminKey struct{}

// onAdminSide marks requests as those of the admin listener.
func onAdminSide(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), adminKey{}, true)))
	})
}

func isAdminSide(ctx context.Context) bool { return ctx.Value(adminKey{}) != nil }
