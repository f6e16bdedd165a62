package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Route is one route of a routes file.
type Route struct {
	// Name is the first pattern
	idempotency.Route

	Match     []string // patterns as net/http.ServeMux takes them, such as "POST /payments/{id}"
	Unguarded bool     // its requests pass as they are
	// those of / \ and ; that its paths may have percent-encoded, in wildcards
	Encoded []string
	// the service may take another method from the field _method of a query or a form
	MethodField bool
	// the request that has the service close an operation in doubt, and say what had happened, as
	// "PUT /operations/{operation}"; "" = the service is not asked
	ResolveAt string
	// from the request's first byte to the answer's last; then the attempt is in doubt
	UpstreamTimeout time.Duration
	// Caller is who sends its requests; the zero value = as [Config].Principal says
	Caller Caller
	line   int // in the file
}

// Routes are a routes file, with its routes in their order. Those that ParseRoutes returns have all
// defaults, pass [idempotency.Route.Check], and go together into one net/http.ServeMux.
type Routes struct {
	List []Route
	// unsafe requests that no route names pass; one with a key is guarded. false = they are refused
	Open bool
}

// What may become of unsafe requests that no route names.
const (
	refuse = "refuse"
	pass   = "pass"
)

// Unmatched is what becomes of unsafe requests that no route names: refuse or pass.
func (r Routes) Unmatched() string {
	if r.Open {
		return pass
	}
	return refuse
}

// Unguarded returns the patterns of unsafe requests that pass unguarded by guard: false, and those
// of them that match more than one path.
func (r Routes) Unguarded() (all, wide []string) {
	for _, route := range r.List {
		for _, pattern := range route.Match {
			method, _, path := muxpattern.Split(pattern)
			if !route.Unguarded || muxpattern.IsSafe(method) {
				continue
			}
			all = append(all, pattern)
			if strings.HasSuffix(path, "/") || strings.Contains(strings.TrimSuffix(path, "{$}"), "{") {
				wide = append(wide, pattern)
			}
		}
	}
	return all, wide
}

// Remarks are about what is in order and may not be meant.
func (r Routes) Remarks() (remarks []string) {
	for _, route := range r.List {
		for _, pattern := range route.Match {
			if method, _, _ := muxpattern.Split(pattern); method == "" && !route.Unguarded {
				remarks = append(remarks, fmt.Sprintf("line %d: match: %q has no method, so that GET and HEAD are guarded as well and need a key; "+
					`"POST %s" is POST alone`, route.line, pattern, pattern))
			}
		}
		for _, name := range route.KeyHeaders {
			if !strings.Contains(name, idempotency.KeyJoint) && strings.Contains(name, "+") {
				remarks = append(remarks, fmt.Sprintf("line %d: key_header: %q is the name of one header; two that are one key together are %q",
					route.line, name, strings.ReplaceAll(name, "+", idempotency.KeyJoint)))
			}
		}
	}
	return remarks
}

// Guarded returns the routes that are guarded.
func (r Routes) Guarded() (guarded []Route) {
	for _, route := range r.List {
		if !route.Unguarded {
			guarded = append(guarded, route)
		}
	}
	return guarded
}

const (
	maxRoutes       = 1000
	maxFile         = 1 << 20 // bytes
	upstreamTimeout = 30 * time.Second
)

// ParseRoutes reads a routes file: YAML, a list under the name routes. The error lists every fault
// on a line of its own, with the file's line and the bound that was broken.
func ParseRoutes(text []byte) (Routes, error) {
	list, open, err := entries(text)
	if err != nil {
		return Routes{}, err
	}
	routes := Routes{Open: open}
	var faults yamlfile.Faults
	for _, entry := range list {
		route := Route{line: entry.Line, UpstreamTimeout: upstreamTimeout}
		readRoute(&faults, entry, &route)
		route.Route = route.WithDefaults()
		routes.List = append(routes.List, route)
	}
	if len(faults) == 0 {
		faults = append(routes.check(), routes.conflicts()...)
	}
	if err := faults.Err(""); err != nil {
		return Routes{}, err
	}
	return routes, nil
}

// entries reads the fields of the file: its list of routes, and whether it is open.
func entries(text []byte) (list []*yaml.Node, open bool, err error) {
	if len(text) > maxFile {
		return nil, false, fmt.Errorf("a routes file has up to %d bytes, not %d", maxFile, len(text))
	}
	root, err := yamlfile.Map(text, "routes file", "field routes")
	if err != nil {
		return nil, false, err
	}
	var routes *yaml.Node
	var faults yamlfile.Faults
	unmatched := refuse
	yamlfile.Fields{
		"routes":    func(_ *yamlfile.Faults, _ string, at *yaml.Node) { routes = at },
		"unmatched": yamlfile.Choice(&unmatched, refuse, pass),
	}.Read(&faults, root)
	open = unmatched == pass
	switch {
	case len(faults) > 0:
	case open && (routes == nil || routes.Tag == "!!null"): // requests with a key are guarded
		return nil, open, nil
	case routes == nil:
		faults.Addf(root.Line, "routes: missing; a file without routes would guard nothing, and pass nothing")
	case routes.Kind != yaml.SequenceNode || len(routes.Content) == 0 && !open || len(routes.Content) > maxRoutes:
		faults.Addf(routes.Line, "routes: a list of 1 to %d routes", maxRoutes)
	default:
		return routes.Content, open, nil
	}
	return nil, false, faults.Err("")
}

func (r Routes) check() (found yamlfile.Faults) {
	for _, route := range r.List {
		if err := route.Check(); err != nil {
			for text := range strings.Lines(err.Error()) {
				found.Addf(route.line, "%s", strings.TrimPrefix(strings.TrimSpace(text), "idempotency: "))
			}
		}
	}
	return found
}

// conflicts finds the patterns that net/http.ServeMux refuses beside those before them.
func (r Routes) conflicts() (found yamlfile.Faults) {
	mux := http.NewServeMux()
	for _, route := range r.List {
		for _, pattern := range route.Match {
			if err := muxpattern.Register(mux, pattern); err != nil {
				found.Addf(route.line, "match: %s", err)
			}
		}
	}
	for _, pattern := range r.resolves() {
		if err := muxpattern.Register(mux, pattern); err != nil {
			at := slices.IndexFunc(r.List, func(route Route) bool { return route.ResolveAt == pattern })
			found.Addf(r.List[at].line, "resolve: clients must not reach it: %s", err)
		}
	}
	return found
}

// CheckHosts finds patterns with a host that the service need not know. Without the client's Host
// the service takes every request for its own, and a request under another name would be one that
// no route names. preserved is set if the service gets the Host; allowed are the names under which
// clients ask.
func (r Routes) CheckHosts(preserved bool, allowed []string) error {
	var found yamlfile.Faults
	namesHosts := preserved || len(allowed) > 0 && !slices.Contains(allowed, "*")
	for _, route := range r.List {
		for _, pattern := range route.Match {
			if _, host, _ := muxpattern.Split(pattern); host != "" && !namesHosts {
				found.Addf(route.line, "match: %q has a host: set --preserve-host, so that the service gets the client's Host, or name the "+
					"hosts with --allowed-hosts", pattern)
			}
		}
	}
	if len(found) == 0 && !preserved {
		_, found = r.hostless(func(Route) http.Handler { return http.NotFoundHandler() })
	}
	return found.Err("")
}

// hostless are the routes by method and path alone, nil if no pattern has a host: a service that
// does not get the client's Host has one operation for a path, so the path belongs to one route.
func (r Routes) hostless(handler func(Route) http.Handler) (mux *http.ServeMux, found yamlfile.Faults) {
	hasHost := false
	mux = http.NewServeMux()
	for _, route := range r.List {
		taken := map[string]bool{}
		for _, pattern := range route.Match {
			method, host, path := muxpattern.Split(pattern)
			bare := strings.TrimSpace(method + " " + path)
			hasHost = hasHost || host != ""
			if taken[bare] {
				continue
			}
			taken[bare] = true
			if err := muxpattern.Handle(mux, bare, handler(route)); err != nil {
				found.Addf(route.line, "match: %q: without --preserve-host the service does not know the host: %s", pattern, err)
			}
		}
	}
	if !hasHost {
		return nil, found
	}
	return mux, found
}
