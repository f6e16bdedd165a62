package gateway

import (
	"fmt"
	"net/http"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Caller is what tells a route's callers apart. One field at most is set.
type Caller struct {
	One     bool                 // nothing: all are one, as where the sender signs what it delivers
	JWT     *jwtprincipal.Config // a claim of the verified bearer token
	Cookies []string             // the values of these cookies
	Ask     *Ask                 // what a service says
}

// callerKinds are the ways to tell callers apart.
var callerKinds = map[string]reader{
	"jwt": func(value *yaml.Node, into *Route) string {
		into.Caller.JWT = &jwtprincipal.Config{}
		if wrong := within(value, tokenFields, into); wrong != "" {
			return wrong
		}
		if err := into.Caller.JWT.Check(); err != nil {
			return err.Error()
		}
		return ""
	},
	"cookie": oneOrMore(func(r *Route) *[]string { return &r.Caller.Cookies }),
	"ask": func(value *yaml.Node, into *Route) string {
		into.Caller.Ask = &Ask{}
		if wrong := within(value, askFields, into); wrong != "" {
			return wrong
		}
		return into.Caller.Ask.fault()
	},
}

// tokenFields are all fields of a route's principal by its verified token.
var tokenFields = map[string]reader{
	"jwks":       text(func(r *Route) *string { return &r.Caller.JWT.JWKS }),
	"claim":      text(func(r *Route) *string { return &r.Caller.JWT.Claim }),
	"issuer":     oneOrMore(func(r *Route) *[]string { return &r.Caller.JWT.Issuers }),
	"audience":   text(func(r *Route) *string { return &r.Caller.JWT.Audience }),
	"algorithms": list(func(r *Route) *[]string { return &r.Caller.JWT.Algorithms }),
	"leeway_ms":  millis(func(r *Route) *time.Duration { return &r.Caller.JWT.Leeway }, time.Second, jwtprincipal.MaxLeeway),
}

// readPrincipal reads a route's principal: none, or a map with one way to tell callers apart.
func readPrincipal(value *yaml.Node, into *Route) string {
	if value.Kind == yaml.ScalarNode && value.Value == "none" {
		into.Caller.One = true
		return ""
	}
	if value.Kind == yaml.MappingNode && len(value.Content) > 2 {
		return "one of jwt, cookie and ask"
	}
	return within(value, callerKinds, into)
}

// within reads a map in the place of a value, and returns its first fault.
func within(value *yaml.Node, known map[string]reader, into *Route) (wrong string) {
	if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		return "none, or a map, as principal: {jwt: {jwks: https://id.example/.well-known/jwks.json}}"
	}
	for i := 0; i+1 < len(value.Content) && wrong == ""; i += 2 {
		key := value.Content[i]
		if read, isKnown := known[key.Value]; !isKnown || key.Kind != yaml.ScalarNode {
			wrong = names.Printable(key.Value) + ": unknown field"
		} else if fault := read(value.Content[i+1], into); fault != "" {
			wrong = key.Value + ": " + fault
		}
	}
	return wrong
}

// CheckKeys finds the faults of key sets in files, of routes whose callers are known by tokens.
func (r Routes) CheckKeys() error {
	_, err := verifiers{}.of(r, nil)
	return err
}

// verifiers are those of the routes in force, by what they are to verify. Routes that want the same
// share one, and a changed file leaves it its keys.
type verifiers map[string]*jwtprincipal.Verifier

// of returns the verifiers that routes need, those that are there already included, and sets the
// principals of the routes. prepare changes what a new one is made of; nil = nothing.
func (v verifiers) of(routes Routes, prepare func(*jwtprincipal.Config)) (next verifiers, err error) {
	next = verifiers{}
	var found yamlfile.Faults
	for i := range routes.List {
		route := &routes.List[i]
		route.Principal = route.Caller.principal()
		if route.Caller.JWT == nil {
			continue
		}
		config := *route.Caller.JWT
		key := fmt.Sprintf("%q", []any{config.JWKS, config.Claim, config.Issuers, config.Audience, config.Algorithms, config.Leeway})
		one := next[key]
		if one == nil {
			one = v[key]
		}
		if one == nil {
			if prepare != nil {
				prepare(&config)
			}
			if one, err = jwtprincipal.New(config); err != nil {
				found.Addf(route.line, "principal: jwt: %s", err)
				continue
			}
		}
		next[key], route.Principal = one, one.Principal
	}
	return next, found.Err("")
}

// principal returns what names a caller; nil = as the configuration says, by a token, or by a
// service.
func (c Caller) principal() func(*http.Request) (string, error) {
	switch {
	case c.One:
		return idempotency.HeaderPrincipal()
	case len(c.Cookies) > 0:
		return byCookies(c.Cookies)
	}
	return nil
}

// byCookies names callers by cookies, of which a request has each once.
func byCookies(cookies []string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		parts := []string{"cookie"}
		for _, name := range cookies {
			values := r.CookiesNamed(name)
			if len(values) != 1 || values[0].Value == "" {
				return "", idempotency.Unauthorized("Cookie", "the cookie "+name+" belongs here, once")
			}
			parts = append(parts, name, values[0].Value)
		}
		return names.Digest(parts...), nil
	}
}
