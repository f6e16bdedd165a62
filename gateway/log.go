package gateway

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// refusedAs are the outcomes of requests that the gateway itself refuses, for an auditor.
var refusedAs = map[outcome]bool{
	badRequest: true, routeUnknown: true, keyError: true, mismatch: true, unknownToken: true, unauthorized: true,
}

// writeLines writes a request's lines to the log, with the route's pattern: a path can be secret.
func (g *Gateway) writeLines(w *responder, r *http.Request, x *exchange, took time.Duration) {
	from := g.addressOf(r)
	if requestlog.Wants(g.config.AccessLog, x.match()) {
		line := []slog.Attr{
			slog.String("method", requestlog.Method(r.Method)), slog.String("route", x.match()),
			slog.String("outcome", string(x.outcome)), slog.Int("status", w.status), slog.Int64("bytes", w.bytes),
			slog.Duration("duration", took), slog.String("address", from),
		}
		g.log.LogAttrs(r.Context(), requestlog.LevelOf(w.status), "request", append(line, requestlog.Refusal(r.Context())...)...)
	}
	if refusedAs[x.outcome] {
		g.audit.Refused(r.Context(), audit.Entry{By: api.EventBy{Address: from, Route: x.match(), Code: string(x.code)}})
	}
}

// addressOf is the address that a request comes from, by its connection or a trusted proxy.
func (g *Gateway) addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if forwarded := r.Header.Values("X-Forwarded-For"); g.config.TrustForwarded && len(forwarded) > 0 {
		last := forwarded[len(forwarded)-1]
		if at, err := netip.ParseAddr(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])); err == nil {
			return at.Unmap().WithZone("").String()
		}
	}
	return host
}

// logged writes a line for each request to the admin side, where the access log is to have all.
func (g *Gateway) logged(next http.Handler) http.Handler {
	if g.config.AccessLog != requestlog.All {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		next.ServeHTTP(w, r)
		route := r.Pattern // a path that is none of the admin side's can hold anything
		if _, path, found := strings.Cut(route, " "); found {
			route = path
		}
		g.log.LogAttrs(r.Context(), slog.LevelInfo, "admin request",
			slog.String("method", requestlog.Method(r.Method)), slog.String("route", route),
			slog.Duration("duration", time.Since(began)), slog.String("address", g.addressOf(r)))
	})
}
