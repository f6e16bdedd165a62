package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Route is one guarded route of a routes file.
type Route struct {
	// Name is the pattern as net/http.ServeMux takes it, such as "POST /payments/{id}"
	idempotency.Route

	// from the request's first byte to the answer's last; then the attempt is in doubt
	UpstreamTimeout time.Duration
	// /Pay is another path than /pay; false = it is the same route, with the same keys
	DistinctCase bool
	// /pay/ is another path than /pay; false = it is the same route, with the same keys
	DistinctSlash bool
	// /pay.json is another path than /pay; false = it is the same route, with the same keys
	DistinctFormat bool
	// the callers are those of verified bearer tokens; nil = as [Config].Principal says
	JWT  *jwtprincipal.Config
	line int // in the file
}

// Routes are the guarded routes of a file, in its order. Those that ParseRoutes returns have all
// defaults, pass [idempotency.Route.Check], and go together into one net/http.ServeMux.
type Routes []Route

const (
	maxRoutes       = 1000
	maxFile         = 1 << 20 // bytes
	upstreamTimeout = 30 * time.Second
)

// ParseRoutes reads a routes file: YAML, a list under the name routes. The error lists every fault
// on a line of its own, with the file's line and the bound that was broken.
func ParseRoutes(text []byte) (Routes, error) {
	list, err := entries(text)
	if err != nil {
		return nil, err
	}
	var routes Routes
	var faults yamlfile.Faults
	for _, entry := range list {
		route := Route{line: entry.Line, UpstreamTimeout: upstreamTimeout}
		faults = append(faults, readRoute(entry, &route)...)
		route.Route = route.WithDefaults()
		routes = append(routes, route)
	}
	if len(faults) == 0 {
		faults = append(routes.check(), routes.conflicts()...)
	}
	if err := faults.Err(""); err != nil {
		return nil, err
	}
	return routes, nil
}

func entries(text []byte) ([]*yaml.Node, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("a routes file has up to %d bytes, not %d", maxFile, len(text))
	}
	root, err := yamlfile.Map(text, "routes file", "field routes")
	if err != nil {
		return nil, err
	}
	var list *yaml.Node
	faults := eachField(root, func(key, value *yaml.Node) string {
		if key.Value != "routes" {
			return "unknown field; the file has one, routes"
		}
		list = value
		return ""
	})
	switch {
	case len(faults) > 0:
	case list == nil:
		faults.Addf(root.Line, "routes: missing; a file without routes would guard nothing")
	case list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > maxRoutes:
		faults.Addf(list.Line, "routes: a list of 1 to %d routes", maxRoutes)
	default:
		return list.Content, nil
	}
	return nil, faults.Err("")
}

func (r Routes) check() (found yamlfile.Faults) {
	for _, route := range r {
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
	mux, lines := http.NewServeMux(), map[string]int{}
	for _, route := range r {
		err := muxpattern.Register(mux, route.Name)
		if conflict, ok := errors.AsType[*muxpattern.ConflictError](err); ok {
			found.Addf(route.line, "match: %s", conflict.At(fmt.Sprintf(" in line %d", lines[conflict.Other])))
		} else if err != nil {
			found.Addf(route.line, "match: %q: %s", route.Name, err)
		} else {
			lines[route.Name] = route.line
		}
	}
	if len(found) > 0 {
		return found
	}
	return r.doubles()
}

// doubles finds patterns that differ only in case, where a route ignores case: one operation would
// have two scopes, and run once in each.
func (r Routes) doubles() (found yamlfile.Faults) {
	first := map[string]Route{}
	for _, route := range r {
		other, isThere := first[fold(route.Name)]
		switch {
		case !isThere:
			first[fold(route.Name)] = route
		case other.Name != route.Name && (!route.DistinctCase || !other.DistinctCase):
			found.Addf(route.line, "match: %q differs from %q in line %d only in small letters and capitals, and would be a second scope "+
				"for the same keys: give it up, or set ignore_case: false in both", route.Name, other.Name, other.line)
		}
	}
	return found
}
