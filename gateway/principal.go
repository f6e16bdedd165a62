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

// read reads a route's principal: none, or a map with one way to tell callers apart.
func (c *Caller) read(found *yamlfile.Faults, name string, at *yaml.Node) {
	if c.One = at.Kind == yaml.ScalarNode && at.Value == "none"; c.One {
		return
	}
	if at.Kind != yaml.MappingNode || len(at.Content) != 2 {
		found.Addf(at.Line, "%s: none, or a map with one of jwt, cookie and ask, as {jwt: {jwks: https://id.example/jwks.json}}", name)
		return
	}
	yamlfile.Fields{
		"jwt": func(found *yamlfile.Faults, name string, at *yaml.Node) {
			c.JWT = &jwtprincipal.Config{}
			tokenFields(c.JWT).Checked(func() error { return c.JWT.Check() })(found, name, at)
		},
		"cookie": yamlfile.Words(&c.Cookies),
		"ask": func(found *yamlfile.Faults, name string, at *yaml.Node) {
			c.Ask = &Ask{}
			c.Ask.fields().Checked(c.Ask.check)(found, name, at)
		},
	}.Checked(func() error { return nil })(found, name, at)
}

// tokenFields are all fields of a route's principal by its verified token.
func tokenFields(into *jwtprincipal.Config) yamlfile.Fields {
	return yamlfile.Fields{
		"jwks":       yamlfile.Text(&into.JWKS),
		"claim":      yamlfile.Text(&into.Claim),
		"issuer":     yamlfile.Words(&into.Issuers),
		"audience":   yamlfile.Text(&into.Audience),
		"algorithms": yamlfile.List(&into.Algorithms, 1),
		"leeway_ms":  yamlfile.Millis(&into.Leeway, time.Second, jwtprincipal.MaxLeeway),
	}
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
func (c *Caller) principal() func(*http.Request) (string, error) {
	switch {
	case c.One: // callers without a credential on other routes are another one
		return func(*http.Request) (string, error) { return names.Digest("none"), nil }
	case len(c.Cookies) > 0:
		return idempotency.CookiePrincipal(c.Cookies...)
	}
	return nil
}
