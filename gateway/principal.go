package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
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
	"algorithms": list(1, func(r *Route) *[]string { return &r.Caller.JWT.Algorithms }),
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
	case c.One: // callers without a credential on other routes are another one
		return func(*http.Request) (string, error) { return names.Digest("none"), nil }
	case len(c.Cookies) > 0:
		return byCookies(c.Cookies)
	}
	return nil
}

// byCookies names callers by cookies. A request whose cookies services read in several ways has no
// caller, and is refused.
func byCookies(cookies []string) func(*http.Request) (string, error) {
	var forms []cookieForm
	for _, name := range cookies {
		forms = append(forms, formOf(name))
	}
	return func(r *http.Request) (string, error) {
		parts := []string{"cookie"}
		for i, name := range cookies {
			value, isPlain := forms[i].value(r.Header.Values("Cookie"))
			if !isPlain {
				return "", &fieldError{"Cookie", "the header Cookie belongs here, once, with the cookie " + name + " in it once, and as " + name +
					"=value: no quotes, spaces, commas or other characters that services read in several ways. Nothing was done"}
			}
			if value == "" {
				return "", idempotency.Unauthorized("Cookie", "the cookie "+name+" belongs here")
			}
			parts = append(parts, name, value)
		}
		return names.Digest(parts...), nil
	}
}

// cookieForm finds a cookie. Node and Rack decode a name; PHP takes spaces, dots and brackets in it
// for an underscore, and brackets at its end for a list; ASP.NET ignores case; Python and older
// servers end a cookie at a space or a comma, but not within quotes.
type cookieForm struct {
	plain  *regexp.Regexp // the cookie as all read it
	likely *regexp.Regexp // the name as some may read it
}

func formOf(name string) cookieForm {
	likely := regexp.MustCompile(`[^\w-]`).ReplaceAllString(strings.ReplaceAll(name, "_", "."), `[_. +\[]`)
	return cookieForm{
		plain:  regexp.MustCompile(`^ ?` + regexp.QuoteMeta(name) + `=([!#-+\--:<-\[\]-~]*)$`),
		likely: regexp.MustCompile(`(?i)(?:^|[;,+"\s])` + likely + `(?:\s*=|[\[\x00]|\s*(?:[;,]|$))`),
	}
}

// value returns the value of the cookie in a request's Cookie headers, "" if it is not there or
// empty. isPlain is false if services may read the header in several ways.
func (f cookieForm) value(headers []string) (value string, isPlain bool) {
	if len(headers) == 0 {
		return "", true
	}
	text, found := headers[0], 0
	for pair := range strings.SplitSeq(text, ";") {
		if strings.Count(pair, `"`)%2 != 0 || strings.Contains(pair, `\"`) {
			return "", false // the text between quotes may go on, or not
		}
		if match := f.plain.FindStringSubmatch(pair); match != nil {
			value, found = match[1], found+1
		}
	}
	return value, len(headers) == 1 && found == len(f.likely.FindAllString(apart.Replace(decodedOnce(text)), -1)) && found <= 1
}

// apart doubles separators, so that each of two neighbours has one.
var apart = strings.NewReplacer(";", ";;", ",", ",,")

// decodedOnce is a text without its percent-encoding, as far as it has one.
func decodedOnce(text string) string {
	return encoded.ReplaceAllStringFunc(text, func(triplet string) string {
		char, _ := url.PathUnescape(triplet) // it matches the expression
		return char
	})
}

var encoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
