package server

import "net/http"

// Admin is the service's own side, for a listener that clients do not reach: /livez, /readyz and /metrics, which here ask nobody who they are, and what [Config].Debug has at
// /debug/. None of that is at the service's own listener but by its own rules: there /metrics takes the role read, and nothing is at /debug/.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", s.echo)
	mux.Handle("GET /readyz", s.echo)
	mux.Handle("GET /metrics", s.metrics.Handler())
	if s.config.Debug != nil {
		mux.Handle("/debug/", s.config.Debug)
	}
	return mux
}
