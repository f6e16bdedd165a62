package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/internal/names"
)

// headers lists the headers that a route takes; a request has one of them, or a key in its body.
func (r Route) headers() []string {
	var taken []string
	if r.Accept != KeyOnly {
		taken = append(taken, TokenHeader)
	}
	return append(taken, r.keyHeaders()...)
}

// keyHeaders are the headers that may have the caller's own key, in their order.
func (r Route) keyHeaders() []string {
	switch {
	case r.Accept == TokenOnly:
		return nil
	case len(r.KeyHeaders) > 0:
		return r.KeyHeaders
	case r.KeyFromBody != "":
		return nil
	}
	return []string{KeyHeader}
}

// takes lists where a request may have its key, for a refusal.
func (r Route) takes() string {
	ways := slices.Clone(r.headers())
	if r.KeyFromBody != "" {
		ways = append(ways, "the value at "+r.KeyFromBody+" of a JSON body")
	}
	return strings.Join(ways, " or ")
}

// ownKeys are the values of the first header with the caller's own key that a request has.
func (r Route) ownKeys(request *http.Request) (header string, values []string) {
	for _, header := range r.keyHeaders() {
		if values := request.Header.Values(header); len(values) > 0 {
			return header, values
		}
	}
	return "", nil
}

// keyMissing is the refusal of a request without a key.
func (r Route) keyMissing() error {
	text := "the request has no key; this route takes " + r.takes()
	switch {
	case r.KeyFromBody != "":
		return &fieldError{ErrKeyMissing, "body" + r.KeyFromBody, text}
	case len(r.KeyHeaders) > 0:
		return &fieldError{ErrKeyMissing, r.KeyHeaders[0], text}
	}
	return fmt.Errorf("%w; this route takes %s", ErrKeyMissing, r.takes())
}

// fieldError is a refusal for a part of the request that is wrong.
type fieldError struct {
	kind        error
	field, text string
}

func (e *fieldError) Error() string { return "idempotency: " + e.text }
func (e *fieldError) Unwrap() error { return e.kind }

// visible matches a key that a header has as it stands.
var visible = names.NewForm("!-~", 1, maxKey)

// readKey reads the caller's own key from the value of a header.
func readKey(header, value string) (string, error) {
	if strings.EqualFold(header, KeyHeader) {
		return parseKey(value)
	}
	if !visible.MatchString(value) {
		text := fmt.Sprintf("malformed key: %s is 1 to %d visible ASCII characters, without spaces", header, maxKey)
		return "", &fieldError{ErrKeyMalformed, header, text}
	}
	return value, nil
}

// wholeNumber matches a JSON number that has one spelling.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// keyIn reads the caller's own key from a request's body.
func (r Route) keyIn(body []byte) (string, error) {
	found, err := valueAt(body, jsontext.Pointer(r.KeyFromBody))
	malformed := func(text string) error {
		return &fieldError{ErrKeyMalformed, "body" + r.KeyFromBody, "malformed key: " + text}
	}
	if err != nil {
		return "", malformed("the body has to be JSON in UTF-8, not compressed, with each name once in an object, " +
			"since the key is at " + r.KeyFromBody)
	}
	if found == nil {
		return "", r.keyMissing()
	}
	key := found.String()
	isKind := found.Kind() == '"' || found.Kind() == '0' && wholeNumber.MatchString(key)
	if !isKind || key == "" || len(key) > maxKey || strings.ContainsFunc(key, unicode.IsControl) {
		return "", malformed(fmt.Sprintf("%s is a text or a whole number, 1 to %d bytes of UTF-8 without control characters",
			r.KeyFromBody, maxKey))
	}
	return key, nil
}

// valueAt is the value at a place of a JSON text, or the end of one that is an object or an array;
// nil if there is none. The whole text is read, since a name that comes twice would be two keys.
func valueAt(text []byte, at jsontext.Pointer) (found *jsontext.Token, err error) {
	decoder, depth := jsontext.NewDecoder(bytes.NewBuffer(text)), strings.Count(string(at), "/")
	for {
		token, err := decoder.ReadToken()
		if errors.Is(err, io.EOF) && decoder.StackDepth() == 0 {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if _, values := decoder.StackIndex(0); values > 1 {
			return nil, errors.New("more than one value")
		}
		if decoder.StackDepth() != depth || decoder.StackPointer() != at {
			continue
		}
		if kind, n := decoder.StackIndex(depth); kind != '{' || n%2 == 0 { // else it is the name
			clone := token.Clone()
			found = &clone
		}
	}
}

// maxPointer bounds where a body has its key, in bytes.
const maxPointer = 255

// checkKey finds what is wrong with where a request has its key.
func (r Route) checkKey() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("idempotency: "+format, args...)) }
	seen := map[string]bool{}
	for _, name := range r.KeyHeaders {
		same := http.CanonicalHeaderKey(name)
		switch {
		case !names.Header.MatchString(name):
			fault("key header %q: not a header's name", name)
		case same == TokenHeader:
			fault("key header %q: it has tokens that were issued; accept: token or either takes it", name)
		case seen[same]:
			fault("key header %q: given twice", name)
		}
		seen[same] = true
	}
	if r.Accept == TokenOnly && (len(r.KeyHeaders) > 0 || r.KeyFromBody != "") {
		fault("accept token: a key of the caller's own, from a header or the body, needs accept key or either")
	}
	if r.KeyFromBody == "" {
		return faults
	}
	if at := jsontext.Pointer(r.KeyFromBody); r.KeyFromBody[0] != '/' || !at.IsValid() || len(at) > maxPointer {
		fault("key from body %q: a JSON Pointer (RFC 6901) of 1 to %d bytes, such as /id or /event/id; did you mean %q?",
			r.KeyFromBody, maxPointer, likelyPointer(r.KeyFromBody))
	}
	if r.Optional {
		fault("key from body: not with a key that is not required: whether there is one is known when the body has been read")
	}
	return faults
}

// likelyPointer is what a place in another notation may mean, as "$.event.id" and "#/event/id".
func likelyPointer(text string) string {
	return "/" + strings.ReplaceAll(strings.TrimLeft(text, "#$./"), ".", "/")
}
