package gateway

import (
	"fmt"
	"net/http"
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

// Unmatched is what becomes of unsafe requests that no route names: refuse or pass.
func (r Routes) Unmatched() string {
	if r.Open {
		return "pass"
	}
	return "refuse"
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
		faults = append(faults, readRoute(entry, &route)...)
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
	faults := eachField(root, func(key, value *yaml.Node) string {
		switch key.Value {
		case "routes":
			routes = value
			return ""
		case "unmatched":
			open = value.Value == "pass"
			if value.Kind != yaml.ScalarNode || !open && value.Value != "refuse" {
				return "refuse or pass"
			}
			return ""
		}
		return "unknown field; the file has two, unmatched and routes"
	})
	switch {
	case len(faults) > 0:
	case routes == nil:
		faults.Addf(root.Line, "routes: missing; a file without routes would guard nothing")
	case routes.Kind != yaml.SequenceNode || len(routes.Content) == 0 || len(routes.Content) > maxRoutes:
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
	return found
}

// CheckHosts finds patterns with a host that the service need not know. Without the client's Host
// the service takes every request for its own, and a request under another name would be one that
// no route names.
func (r Routes) CheckHosts(namesHosts bool) error {
	var found yamlfile.Faults
	for _, route := range r.List {
		for _, pattern := range route.Match {
			if _, host, _ := muxpattern.Split(pattern); host != "" && !namesHosts {
				found.Addf(route.line, "match: %q has a host: set --preserve-host, so that the service gets the client's Host, or name the "+
					"hosts with --allowed-hosts", pattern)
			}
		}
	}
	return found.Err("")
}
