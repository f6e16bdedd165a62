package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// The pages that the gateway answers itself. They hide what the upstream has under these paths.
const (
	policyPath  = "/idempotency-policy"
	problemPath = "/problems/"
)

// ownPage answers a request for a page of the gateway's own, and refuses what no gateway can pass
// on. ok is false for all other requests.
func (g *Gateway) ownPage(w http.ResponseWriter, r *http.Request, x *exchange, routes *table) (ok bool) {
	looks := r.Method == http.MethodGet || r.Method == http.MethodHead
	page := problemPage(r.URL.Path)
	switch {
	case r.Method == "PRI": // how HTTP/2 begins on a plain connection
		x.outcome = badRequest
		g.writeProblem(w, r, wire.NewProblem(wire.MethodNotAllowed, "HTTP/2 is not spoken here"))
	case looks && r.URL.Path == policyPath:
		x.outcome = own
		frontdoor.Harden(w, r)
		writeJSON(w, http.StatusOK, routes.published)
	case looks && page != "":
		x.outcome = own
		frontdoor.Harden(w, r)
		w.Header().Set("Content-Security-Policy", wire.PagePolicy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page) // the client may have hung up
	default:
		return false
	}
	return true
}

// refuseTarget answers a request whose target has none of the forms that a server takes: nothing
// can say which route it belongs to.
func (g *Gateway) refuseTarget(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = badRequest
	if r.Method == http.MethodConnect {
		g.writeProblem(w, r, wire.NewProblem(wire.MethodNotAllowed, "CONNECT asks for a proxy of another kind"))
		return
	}
	problem := wire.NewProblem(wire.InvalidRequest, "the request line: its target has to be a path, or an http or https URL with a host; nothing was sent to the service behind the gateway")
	problem.Field = "target"
	g.writeProblem(w, r, problem)
}

// refuseHost answers a request under a name that is none of the gateway's.
func (g *Gateway) refuseHost(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.outcome = badRequest
	problem := wire.NewProblem(wire.Forbidden, frontdoor.HostRule)
	problem.Field = "Host"
	g.writeProblem(w, r, problem)
}

// problemPage is the page of the problem that a path names, "" if it names none.
func problemPage(path string) string {
	name, found := strings.CutPrefix(path, problemPath)
	codes := wire.Codes()
	at := slices.Index(codes, wire.Code(name))
	if !found || at < 0 {
		return ""
	}
	page, _ := wire.Page(codes[at])
	return page
}

// writeJSON answers with a value that always marshals.
func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may have hung up
}
