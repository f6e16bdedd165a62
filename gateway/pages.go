package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
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
		g.refuseField(w, r, api.MethodNotAllowed, "", "HTTP/2 is not spoken here")
	case looks && r.URL.Path == policyPath:
		x.outcome = own
		frontdoor.Harden(w, r)
		writeJSON(w, http.StatusOK, routes.published)
	case looks && page != "":
		x.outcome = own
		frontdoor.Harden(w, r)
		w.Header().Set("Content-Security-Policy", api.PagePolicy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page) // the client may have hung up
	default:
		return false
	}
	return true
}

// refuseTarget refuses a request whose target no server takes: it belongs to no route.
func (g *Gateway) refuseTarget(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		g.refuseField(w, r, api.MethodNotAllowed, "", "CONNECT asks for a proxy of another kind")
		return
	}
	g.refuseField(w, r, api.InvalidRequest, "target",
		"the request line: its target has to be a path, or an http or https URL with a host; nothing was sent to the service behind "+
			"the gateway")
}

// fieldError is a fault of a field of a request, for which nothing is run.
type fieldError struct{ field, text string }

func (e *fieldError) Error() string { return "gateway: " + e.text }

// refuseField answers a request that is wrong in a field, "" = in none.
func (g *Gateway) refuseField(w http.ResponseWriter, r *http.Request, code api.Code, field, detail string) {
	exchangeOf(r.Context()).outcome = badRequest
	problem := api.NewProblem(code, detail)
	problem.Field = field
	g.writeProblem(w, r, problem)
}

// problemPage is the page of the problem that a path names, "" if it names none.
func problemPage(path string) string {
	name, _ := strings.CutPrefix(path, problemPath)
	page, _ := api.Page(api.Code(name))
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
