package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// target is what a request that changes something finds at its path if it succeeds. Preconditions
// (RFC 9110, section 13.1) are judged by it, so that none is ignored in silence.
type target int

const (
	// unnamed is for what the path does not tell: a request with a precondition is refused.
	unnamed target = iota
	judged         // the handler judges preconditions itself, in the step that changes something
	present        // without it the request fails anyway
	vacant         // with it the request fails anyway
)

// changes reports whether requests of a method may change something.
func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// conditional refuses a request whose preconditions are false. Only counters have entity tags: no
// tag matches anything else.
func conditional(on target) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := &request{Context: c}
			if on != judged {
				r.require(on)
			}
			if r.err != nil {
				return r.err
			}
			return next(c)
		}
	}
}

// require fails a request whose preconditions are false of what it finds at its path.
func (r *request) require(on target) {
	only := r.conditions()
	falseOf := func(given bool, field, detail string) {
		if given {
			r.fail(&fault{api.PreconditionFailed, field, detail})
		}
	}
	switch on {
	case present:
		falseOf(only.match.given && !only.match.any, ifMatch, "this has no entity tag, so that none matches; leave it out")
		falseOf(only.noneMatch.any, ifNoneMatch, "it is there, or this does nothing")
	case vacant:
		falseOf(only.match.given, ifMatch, "it is not there, or this does nothing")
	default:
		const detail = "this request takes no precondition; leave it out"
		falseOf(only.match.given, ifMatch, detail)
		falseOf(only.noneMatch.given, ifNoneMatch, detail)
	}
}

const ifMatch, ifNoneMatch = "If-Match", "If-None-Match"

// conditions are the preconditions of a request. Nothing here has a date of its change, so that
// If-Unmodified-Since and If-Modified-Since mean nothing.
type conditions struct{ match, noneMatch tags }

// conditions reads the preconditions.
func (r *request) conditions() conditions {
	return conditions{r.tags(ifMatch, false), r.tags(ifNoneMatch, true)}
}

// tags is what one precondition names.
type tags struct {
	given bool
	any   bool        // *
	list  []entityTag // that can match
}

// entityTag is a tag without its quotes.
type entityTag string

// has reports whether a tag is named, or *.
func (t tags) has(tag entityTag) bool { return t.any || slices.Contains(t.list, tag) }

// oneTag is an entity tag at the beginning of a list, with what is before the next one.
var oneTag = lazyregexp.New("^(W/)?\"([^\"\\x00-\\x20\\x7f]*)\"[ \t]*(?:,[ \t,]*|$)")

// tags reads a precondition: * or a list of entity tags. Weak tags are among them where they match.
func (r *request) tags(field string, weak bool) (named tags) {
	fields := r.Request().Header.Values(field)
	named.given = len(fields) > 0
	text := strings.Trim(strings.Join(fields, ","), " \t,")
	if named.any = text == "*"; named.any {
		return named
	}
	for text != "" {
		found := oneTag().FindStringSubmatch(text)
		if found == nil {
			break
		}
		if found[1] == "" || weak {
			named.list = append(named.list, entityTag(found[2]))
		}
		text = text[len(found[0]):]
	}
	if named.given && (text != "" || strings.Join(fields, "") == "") {
		r.invalid(field, `* or entity tags in quotes, such as "5", with a comma between`)
	}
	return named
}
