package requestlog

// Which requests have a line in the access log.
const (
	All      = "all"
	NoHealth = "no-health" // all but those for /livez, /readyz and /metrics
	None     = "none"
)

// Wants reports whether a request for a route has a line in the access log of a mode; "" =
// NoHealth.
func Wants(mode, route string) bool {
	switch mode {
	case None:
		return false
	case All:
		return true
	}
	return route != "/livez" && route != "/readyz" && route != "/metrics"
}
