package gateway

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// tokenFields are all fields of a route's principal by its verified token.
var tokenFields = map[string]reader{
	"jwks":       text(func(r *Route) *string { return &r.JWT.JWKS }),
	"claim":      text(func(r *Route) *string { return &r.JWT.Claim }),
	"issuer":     text(func(r *Route) *string { return &r.JWT.Issuer }),
	"audience":   text(func(r *Route) *string { return &r.JWT.Audience }),
	"algorithms": list(func(r *Route) *[]string { return &r.JWT.Algorithms }),
	"leeway_ms":  millis(func(r *Route) *time.Duration { return &r.JWT.Leeway }, time.Second, jwtprincipal.MaxLeeway),
}

// readPrincipal reads a route's principal, {jwt: {jwks: …}}.
func readPrincipal(value *yaml.Node, into *Route) string {
	return within(value, map[string]reader{"jwt": func(value *yaml.Node, into *Route) string {
		into.JWT = &jwtprincipal.Config{}
		if wrong := within(value, tokenFields, into); wrong != "" {
			return wrong
		}
		if err := into.JWT.Check(); err != nil {
			return err.Error()
		}
		return ""
	}}, into)
}

// within reads a map in the place of a value, and returns its first fault.
func within(value *yaml.Node, known map[string]reader, into *Route) (wrong string) {
	if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
		return "a map belongs here, as principal: {jwt: {jwks: https://id.example/.well-known/jwks.json}}"
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
	for i := range routes {
		if routes[i].JWT == nil {
			continue
		}
		config := *routes[i].JWT
		key := fmt.Sprintf("%q", []any{config.JWKS, config.Claim, config.Issuer, config.Audience, config.Algorithms, config.Leeway})
		one := next[key]
		if one == nil {
			one = v[key]
		}
		if one == nil {
			if prepare != nil {
				prepare(&config)
			}
			if one, err = jwtprincipal.New(config); err != nil {
				found.Addf(routes[i].line, "principal: jwt: %s", err)
				continue
			}
		}
		next[key], routes[i].Principal = one, one.Principal
	}
	return next, found.Err("")
}
