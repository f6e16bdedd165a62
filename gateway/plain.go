package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/target"
)

// A service may take many spellings of a path for one: it decodes it, drops what follows a
// semicolon, resolves dot segments, ignores a line feed at the end. The gateway knows none of these
// rules. It takes an unsafe request with one spelling, the plain one.

// delimiters are the characters that separate parts of a path in some services. A path that has
// them encoded is plain on a route that allows it.
const delimiters = `/\;`

// plainPath is a path in its plain form.
type plainPath struct {
	text    string // as it is sent: hex digits in capitals
	decoded string
	encoded string // those of the delimiters that are encoded in it
}

// plainly returns an unsafe request with its path in the plain form. The error says why the path
// has another form.
func plainly(r *http.Request) (*http.Request, plainPath, error) {
	written := frontdoor.RawPath(r.URL)
	path, err := readPath(written)
	if err != nil || path.text == written {
		return r, path, err
	}
	text := path.text
	if _, query, has := strings.Cut(r.RequestURI, "?"); has {
		text += "?" + query
	}
	return target.With(withPath(r, path.decoded, path.text), text), path, nil
}

// hostText matches the Host of an unsafe request. Services take others for the same name: nginx
// cuts shop.example:80:90 at the first colon.
var hostText = lazyregexp.New(`^([\w-]+(\.[\w-]+)*\.?|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%25[\w.~-]+)?\])?(:[0-9]*)?$`)

func withPath(r *http.Request, path, raw string) *http.Request {
	read, at := *r, *r.URL
	at.Path, at.RawPath = path, raw
	read.URL = &at
	return &read
}

// readPath reads a path as it was written.
func readPath(written string) (path plainPath, err error) {
	if !strings.HasPrefix(written, "/") {
		return path, errors.New("it does not begin with a slash")
	}
	path = plainPath{text: written, decoded: written}
	if strings.Contains(written, "%") {
		if path, err = decode(written); err != nil {
			return path, err
		}
	}
	for i := range len(path.text) {
		if !inPath(path.text[i]) {
			return path, fmt.Errorf("it has the character %q, which is percent-encoded in a path", path.text[i])
		}
	}
	return path, checkDecoded(path.decoded)
}

var errHex = errors.New("a percent sign has no two hex digits after it")

// decode decodes a path, in which each encoded character has to be one that needs it.
func decode(written string) (plainPath, error) {
	var text, decoded, encoded strings.Builder
	for rest := written; rest != ""; {
		if rest[0] != '%' {
			text.WriteByte(rest[0])
			decoded.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		triplet := rest[:min(3, len(rest))]
		char, err := url.PathUnescape(triplet)
		switch {
		case err != nil:
			return plainPath{}, errHex
		case unreserved(char[0]):
			return plainPath{}, fmt.Errorf("it has %s, which is written %s", triplet, char)
		case strings.Contains(delimiters, char):
			encoded.WriteString(char)
		}
		text.WriteString(strings.ToUpper(triplet))
		decoded.WriteString(char)
		rest = rest[3:]
	}
	return plainPath{text.String(), decoded.String(), encoded.String()}, nil
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// inPath reports whether a character stands in a path as it is (RFC 3986, section 3.3). A semicolon
// does not: it begins parameters, which some services drop.
func inPath(c byte) bool { return unreserved(c) || strings.IndexByte("/%!$&'()*+,=:@", c) >= 0 }

// checkDecoded returns why a decoded path is not plain.
func checkDecoded(path string) error {
	if !utf8.ValidString(path) {
		return errors.New("it is not UTF-8")
	}
	if strings.ContainsFunc(path, unicode.IsControl) {
		return errors.New("it has a control character")
	}
	segments := segmentsOf(path)
	switch {
	case hasDots(segments):
		return errors.New("it has a dot segment, . or .., in it")
	case slices.Contains(segments[:len(segments)-1], ""):
		return errors.New("it has two slashes beside each other")
	}
	return nil
}

// segmentsOf are the segments of a decoded path, as a service has them that takes any delimiter.
func segmentsOf(path string) []string {
	segments := strings.Split(strings.ReplaceAll(strings.TrimPrefix(path, "/"), `\`, "/"), "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return segments
}

func hasDots(segments []string) bool {
	return slices.Contains(segments, ".") || slices.Contains(segments, "..")
}

// asWritten returns a safe request whose path keeps the encoding that its client gave it.
// URL.EscapedPath would encode the path anew if a character in it should have been encoded and is
// not, and an encoded slash beside that would be none any more.
func asWritten(r *http.Request) *http.Request {
	if raw := r.URL.RawPath; raw != "" && r.URL.EscapedPath() != raw {
		return withPath(r, r.URL.Path, encodeRest(raw))
	}
	return r
}

// encodeRest encodes what stands in no URL, and leaves percent signs as they are.
func encodeRest(raw string) string {
	var text strings.Builder
	for i := range len(raw) {
		if c := raw[i]; inPath(c) || strings.IndexByte(";[]", c) >= 0 {
			text.WriteByte(c)
		} else {
			fmt.Fprintf(&text, "%%%02X", c)
		}
	}
	return text.String()
}
