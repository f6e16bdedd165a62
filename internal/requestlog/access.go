package requestlog

import (
	"log/slog"
	"net/http"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
)

// Which requests have a line in the access log.
const (
	All      = "all"
	NoHealth = "no-health" // all but those for /livez, /readyz and /metrics
	None     = "none"
)

// Wants reports whether a mode's access log has requests for a route; "" = NoHealth.
func Wants(mode, route string) bool {
	switch mode {
	case None:
		return false
	case All:
		return true
	}
	return route != "/livez" && route != "/readyz" && route != "/metrics"
}

var saneID = names.NewForm("A-Za-z0-9._:@/+=-", 1, 128)

// IDOf is a request's id in the log: the client's X-Request-Id if it is sane, else a new one.
func IDOf(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); saneID.MatchString(id) {
		return id
	}
	return secret.New()
}

// Method is a request's method, or "other" for an invented one, which the log must not quote.
func Method(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		http.MethodTrace, http.MethodConnect:
		return method
	}
	return "other"
}

// LevelOf is the level of the line of a request that was answered with a status.
func LevelOf(status int) slog.Level {
	if status >= http.StatusInternalServerError {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
