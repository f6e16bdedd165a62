package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// methodField is the field of a query, a form or JSON in which Rails, Laravel and Symfony take
// another method than that of the request.
const methodField = "_method"

// formHead is how many bytes of a body that passes unguarded are searched for that field.
const formHead = 64 << 10

// keepsMethod refuses an unsafe request with the field, unless its route allows it: the service
// would run another method than the one that the routes file names.
func (g *Gateway) keepsMethod(w http.ResponseWriter, r *http.Request, x *exchange, streams bool) bool {
	if x.route == nil || x.route.MethodField || muxpattern.IsSafe(r.Method) {
		return true
	}
	limit := int64(formHead)
	if !streams {
		limit = x.route.MaxBody
	}
	if !namesMethod(r.URL.RawQuery) && (streams && isTalk(r) || !formNamesMethod(r, limit)) {
		return true
	}
	g.refuseField(w, r, api.InvalidRequest, methodField, methodField+" in a query, a form or JSON has a service run another method. A route "+
		"allows it with method_field: true; nothing was sent to the service behind the gateway")
	return false
}

// isTalk reports whether a body may wait for its answer, and so cannot be waited for: nothing says
// what it is.
func isTalk(r *http.Request) bool { return strings.Join(r.Header.Values("Content-Type"), "") == "" }

// namesMethod reports whether a query, or a form written like one, has the field.
func namesMethod(query string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil && asVariable(decoded) == methodField {
			return true
		}
	}
	return false
}

// asVariable is a field's name as PHP reads it: without white space before it, up to a NUL, and
// with an underscore in place of a dot or a bracket at its beginning. Rack drops white space, too.
func asVariable(name string) string {
	name, _, _ = strings.Cut(strings.TrimLeft(name, " \t\r\n\v\f"), "\x00")
	if name != "" && strings.IndexByte(".[", name[0]) >= 0 {
		name = "_" + name[1:]
	}
	return name
}

// forms are the types of bodies that have fields, and what finds the field in each. Only a part of
// a type is looked for: Rack cuts it at a comma, and PHP at a space. Rack takes a body without one
// for a form, and names a part by Content-ID, too. Laravel takes fields of JSON.
var forms = []struct {
	media *regexp.Regexp
	names func(body string) bool
}{
	{regexp.MustCompile(`(?i)^\s*$|x-www-form-urlencoded`), namesMethod},
	{
		regexp.MustCompile(`(?i)multipart/`),
		regexp.MustCompile(`(?i)(\bname\s*=|\bcontent-id\s*:)\s*["']?\s*[_.[]method(["';\s]|$)`).MatchString,
	},
	{regexp.MustCompile(`(?i)[/+]json\b`), regexp.MustCompile(`"` + methodField + `"\s*:`).MatchString},
}

// escape matches what a text between quotes may have in place of a character.
var escape = regexp.MustCompile(`\\(u00[0-9A-Fa-f]{2}|[^u])`)

// unescaped is a body without the escapes of texts between quotes.
func unescaped(body string) string {
	return escape.ReplaceAllStringFunc(body, func(one string) string {
		if char, err := strconv.ParseUint(one[2:], 16, 8); one[1] == 'u' && err == nil {
			return string(rune(char))
		}
		return one[1:]
	})
}

// formNamesMethod reports whether the beginning of a form has the field. The body stays whole.
func formNamesMethod(r *http.Request, limit int64) bool {
	types := r.Header.Values("Content-Type")
	if len(types) == 0 {
		types = []string{""}
	}
	var head string
	for _, form := range forms {
		if r.Body == nil || r.Body == http.NoBody || !slices.ContainsFunc(types, form.media.MatchString) {
			continue
		}
		if head == "" {
			head = peek(r, limit)
		}
		if form.names(head) || strings.Contains(head, `\`) && form.names(unescaped(head)) {
			return true
		}
	}
	return false
}

// peek reads the beginning of a body, which stays whole.
func peek(r *http.Request, limit int64) string {
	head, _ := io.ReadAll(io.LimitReader(r.Body, limit)) // who reads the body meets the error again
	frontdoor.Count(r, int64(len(head)))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	return string(head)
}
