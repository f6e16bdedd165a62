package gateway

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// methodField is the field of a query, a form or JSON in which Rails, Laravel and Symfony take
// another method than that of the request.
const methodField = "_method"

var errMethodField = &fieldError{methodField, methodField + " in a query, a form or JSON has a service run another method. A route " +
	"allows it with method_field: true. The service behind the gateway did not get the field"}

// keepsMethod refuses an unsafe request with the field in its query, unless its route allows it:
// the service would run another method than the one that the routes file names. A body with the
// field breaks off before it, however long the body is, so that no service can read the field.
func (g *Gateway) keepsMethod(w http.ResponseWriter, r *http.Request, x *exchange, streams bool) bool {
	if x.route == nil || x.route.MethodField || muxpattern.IsSafe(r.Method) {
		return true
	}
	has := formField.in([]byte("&" + r.URL.RawQuery))
	if fields := fieldsOf(r); !has && len(fields) > 0 {
		r.Body = &searchedBody{ReadCloser: r.Body, fields: fields, seam: []byte("&")}
		// one that says nothing about itself may wait for its answer
		saysMore := r.ContentLength > 0 || r.Header.Get("Content-Type") != ""
		has = streams && saysMore && startHasField(r)
	}
	if has {
		g.refuseField(w, r, api.InvalidRequest, errMethodField.field, errMethodField.text)
	}
	return !has
}

// startHasField looks for the field in what comes first of a body that is passed on as it comes, so
// that most requests with the field do not reach the service at all. The body stays whole.
func startHasField(r *http.Request) bool {
	size := int64(4 << 10) // as net/http reads
	if r.ContentLength > 0 {
		size = min(size, r.ContentLength)
	}
	start := make([]byte, size)
	n, err := r.Body.Read(start) // the transport meets any other error again
	frontdoor.Count(r, int64(n))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start[:n]), r.Body), r.Body}
	return errors.Is(err, errMethodField)
}

// fieldForm matches the field where a kind of body has it. Escapes of characters are undone before.
// White space is matched up to a bound, since a body is searched in pieces.
type fieldForm struct{ *regexp.Regexp }

var (
	// PHP takes a dot or a bracket for the underscore, and cuts a name at a NUL. PHP and Rack drop
	// white space before a name, and Rack drops brackets around it.
	formField = fieldForm{regexp.MustCompile(`([&;+\s][\[\]]{0,8}|[\[\]]{9})[_.[]method(\]{0,8}[=\x00]|\]{9})`)}
	// The value of name= in a part's header, or of Content-ID, which Rack takes as well.
	partField = fieldForm{regexp.MustCompile(`([=:]\s{0,16}["']?\s{0,16}[\[\]]{0,8}|\s{17}|[\[\]]{9})[_.[]method["';\s\]\x00]`)}
	jsonField = fieldForm{regexp.MustCompile(`"_method"(\s{0,16}:|\s{17})`)}
)

// bodies are the types of bodies that have fields. Only a part of a type is looked for: Rack cuts
// it at a comma, and PHP at a space. Rack takes a body without a type for a form. Laravel takes
// fields of JSON.
var bodies = []struct {
	media *regexp.Regexp
	field fieldForm
}{
	{regexp.MustCompile(`(?i)^\s*$|x-www-form-urlencoded`), formField},
	{regexp.MustCompile(`(?i)multipart/`), partField},
	{regexp.MustCompile(`(?i)[/+]json`), jsonField},
}

// fieldsOf are the forms in which the body of a request may have the field.
func fieldsOf(r *http.Request) (fields []fieldForm) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	types := r.Header.Values("Content-Type")
	if len(types) == 0 {
		types = []string{""}
	}
	for _, body := range bodies {
		if slices.ContainsFunc(types, body.media.MatchString) {
			fields = append(fields, body.field)
		}
	}
	return fields
}

// searchedBody is a body that breaks off before the field. Nothing is held back that has no field.
type searchedBody struct {
	io.ReadCloser

	fields []fieldForm
	seam   []byte // the end of what was read, in which the field may begin
}

// longestField is how many bytes the field takes at most, with what is around it and with escapes.
const longestField = 128

// Read implements [io.Reader].
func (b *searchedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.seam = append(b.seam, into[:min(n, longestField)]...)
	for _, field := range b.fields {
		if field.in(b.seam) || n > longestField && field.in(into[:n]) {
			return 0, errMethodField
		}
	}
	if n > longestField {
		b.seam = append(b.seam[:0], into[n-longestField:n]...)
	}
	b.seam = b.seam[:copy(b.seam, b.seam[max(0, len(b.seam)-longestField):])]
	return n, err
}

// in reports whether a text has the field.
func (f fieldForm) in(text []byte) bool {
	const before, after = 60, 20 // bytes around the word that a form looks at
	word := []byte(methodField[1:])
	for text = unescaped(text); ; {
		at := bytes.Index(text, word)
		if at < 0 {
			return false
		}
		if f.Match(text[max(0, at-before):min(len(text), at+len(word)+after)]) {
			return true
		}
		text = text[at+1:]
	}
}

// escapes are what may stand for a character of the field, or for white space before it.
var escapes = regexp.MustCompile(`^(%(5[fFbBdD]|2[eE0]|6[dD58fF4]|74|0[09a-dA-D])|\\u00[0-9A-Fa-f]{2}|\\[^u"])`)

// unescaped is a text without the escapes that stand for a character of the field.
func unescaped(text []byte) []byte {
	var plain []byte
	for {
		at := bytes.IndexAny(text, `%\`)
		if at < 0 && plain == nil {
			return text
		}
		if at < 0 {
			return append(plain, text...)
		}
		plain, text = append(plain, text[:at]...), text[at:]
		char, size := text[0], 1
		if escape := escapes.Find(text[:min(len(text), len(`\u0000`))]); escape != nil {
			char, size = charOf(escape), len(escape)
		}
		plain, text = append(plain, char), text[size:]
	}
}

// charOf is the character that an escape stands for.
func charOf(escape []byte) byte {
	if len(escape) == len(`\x`) {
		return escape[1]
	}
	char, _ := hex.DecodeString(string(escape[len(escape)-2:])) // it matches the expression
	return char[0]
}
