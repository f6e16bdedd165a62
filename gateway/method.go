package gateway

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// methodField is the field of a query or a form in which Rails, Laravel and Symfony take another
// method than that of the request.
const methodField = "_method"

// formHead is how many bytes of a form that passes unguarded are searched for that field.
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
	if !namesMethod(r.URL.RawQuery) && !formNamesMethod(r, limit) {
		return true
	}
	g.refuseField(w, r, api.InvalidRequest, methodField, methodField+" in a query or a form has a service run another method. A route "+
		"allows it with method_field: true; nothing was sent to the service behind the gateway")
	return false
}

// namesMethod reports whether a query, or a form written like one, has the field.
func namesMethod(query string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil && decoded == methodField {
			return true
		}
	}
	return false
}

// multipartName matches the field among the parts of a form.
var multipartName = regexp.MustCompile(`(?i)\bname\s*=\s*["']?` + methodField + `["';\s]`)

// formNamesMethod reports whether the beginning of a form has the field. The body stays whole.
func formNamesMethod(r *http.Request, limit int64) bool {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isParts := media == "multipart/form-data"
	if !isParts && media != "application/x-www-form-urlencoded" || r.Body == nil || r.Body == http.NoBody {
		return false
	}
	head, _ := io.ReadAll(io.LimitReader(r.Body, limit)) // who reads the body meets the error again
	frontdoor.Count(r, int64(len(head)))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	if isParts {
		return multipartName.Match(head)
	}
	return namesMethod(string(head))
}
