package gateway

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// methodField is the field of a query or a body in which Rails, Laravel and Symfony take
// another method than that of the request.
const methodField = "_method"

var errMethodField = &fieldError{methodField, methodField + " in a query or a body has services run another method. A route " +
	"allows it with method_field: true. The service behind the gateway did not get the field"}

// keepsMethod refuses an unsafe request with the field in its query, unless its route allows it:
// the service would run another method than the one that the routes file names. A body with the
// field breaks off before it, however long the body is, so that no service can read the field.
func (g *Gateway) keepsMethod(w http.ResponseWriter, r *http.Request, x *exchange, streams bool) bool {
	if x.route == nil || x.route.MethodField || muxpattern.IsSafe(r.Method) {
		return true
	}
	has := hasMethodField([]byte("&" + r.URL.RawQuery + "&"))
	if !has && r.Body != nil && r.Body != http.NoBody {
		r.Body = &searchedBody{ReadCloser: r.Body, seam: []byte("&")}
		// one of a length that is not known may wait for its answer
		has = streams && r.ContentLength > 0 && startHasField(r)
	}
	if has {
		g.refuseField(w, r, api.InvalidRequest, errMethodField.field, errMethodField.text)
	}
	return !has
}

// startHasField looks for the field in what comes first of a body that is passed on as it comes, so
// that most requests with the field do not reach the service at all. The body stays whole, and the
// transport meets any other error again.
func startHasField(r *http.Request) bool {
	start := make([]byte, min(4<<10, r.ContentLength)) // as net/http reads
	n, err := r.Body.Read(start)
	frontdoor.Count(r, int64(n))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start[:n]), r.Body), r.Body}
	return errors.Is(err, errMethodField)
}

// searchedBody is a body that breaks off before the field. Nothing is held back that has no field.
type searchedBody struct {
	io.ReadCloser

	seam []byte // the end of what was read, in which the field may begin
}

// longestField is how many bytes the field takes at most, with what is around it and with escapes.
const longestField = 128

// Read implements [io.Reader].
func (b *searchedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.seam = append(b.seam, into[:min(n, longestField)]...)
	if hasMethodField(b.seam) || n > longestField && hasMethodField(into[:n]) {
		return 0, errMethodField
	}
	if n > longestField {
		b.seam = append(b.seam[:0], into[n-longestField:n]...)
	}
	b.seam = b.seam[:copy(b.seam, b.seam[max(0, len(b.seam)-longestField):])]
	return n, err
}

// methodName matches the field's name where it is no part of a longer one, in a body of any type.
// It may be a value as well: services read bodies in more ways than there are rules for. PHP takes
// a dot or a bracket for the underscore.
var methodName = lazyregexp.New(`[^\w-][_.[]method[^\w-]`)

func hasMethodField(text []byte) bool {
	text = unescaped(text)
	isLikely := bytes.Contains(text, []byte(methodField[1:])) // which is found fast
	return isLikely && methodName().Match(text)
}

// escapes are what may stand for a character of the field, or for white space before it.
var escapes = lazyregexp.New(`^(%(5[fFbBdD]|2[eE0]|6[dD58fF4]|74|0[09a-dA-D])|\\u00[0-9A-Fa-f]{2}|\\[][_.a-tv-z])`)

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
		if escape := escapes().Find(text[:min(len(text), len(`\u0000`))]); escape != nil {
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
