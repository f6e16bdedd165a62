package gateway

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// stopTimeout is how long requests under way may take to end at a stop: as long as the routes let
// them, so that none is cut off and in doubt, unless the configuration says otherwise.
func (g *Gateway) stopTimeout() time.Duration {
	if g.config.StopTimeout > 0 {
		return g.config.StopTimeout
	}
	return g.routes.Load().longest.UpstreamTimeout + frontdoor.StopMargin
}

// longestOf returns the route with the longest UpstreamTimeout, earlier ones that may run included.
func longestOf(routes Routes, before *table) Route {
	var longest Route
	if before != nil {
		longest = before.longest
	}
	list := routes.List
	if routes.Open {
		list = append(slices.Clip(list), unmatched())
	}
	for _, route := range list {
		if route.UpstreamTimeout > longest.UpstreamTimeout {
			longest = route
		}
	}
	return longest
}

// warnOfStop warns if a stop waits for less than a route allows.
func (g *Gateway) warnOfStop(longest Route) {
	if g.stopTimeout() < longest.UpstreamTimeout {
		g.log.Warn("a stop does not wait for the longest request: its token would be in doubt; raise --stop-timeout, or leave it out",
			"stop_timeout", g.config.StopTimeout, "upstream_timeout", longest.UpstreamTimeout, "route", longest.Name)
	}
}

// errAtStop refuses what would begin during a stop.
var errAtStop = errors.New("gateway: the gateway is stopping, and begins nothing")

// admit is asked before a request is claimed. Its body, or another attempt that it waited for, may
// have taken until the stop.
func (g *Gateway) admit() error {
	if g.draining.Closing.Load() {
		return errAtStop
	}
	return nil
}

// refuseAtStop answers a guarded request that came just before the end: nothing is claimed for it.
func (g *Gateway) refuseAtStop(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = atStop
	g.writeProblem(w, r, api.NewProblem(api.UpstreamUnavailable,
		"The gateway is stopping, and nothing was done. Ask again: another one answers."))
}
