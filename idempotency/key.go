package idempotency

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/coatcheck/coatcheck/internal/names"
)

// The headers that carry a token and a client's own key.
const (
	TokenHeader = "Idempotency-Token"
	KeyHeader   = "Idempotency-Key"
)

// Accept is which header a route takes.
type Accept string

// What a route may take.
const (
	AcceptEither Accept = "either" // the default
	AcceptToken  Accept = "token"
	AcceptKey    Accept = "key"
)

const maxKey = 255 // characters of a client's key or a token

// bare reports whether a value is a key without quotes: visible ASCII without " , ; and backslash.
func bare(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == ',' || c == ';' || c == '\\' {
			return false
		}
	}
	return len(value) > 0 && len(value) <= maxKey
}

// keyOf returns the key of a request's operation: one of the headers of the route, once. Of both
// the token counts. Who asks is only a question of a request that has one.
func keyOf(r *http.Request, route Route, principal func(*http.Request) (string, error), space string) (key Key, err error) {
	tokens := r.Header.Values(TokenHeader)
	header, keys := route.keyHeader(r)
	if route.Accept == AcceptToken {
		keys = 0
	}
	if route.Accept == AcceptKey {
		tokens = nil
	}
	if len(tokens) == 1 {
		keys = 0 // an issued token says more than a key that a browser or a library has added
	}
	switch {
	case len(tokens)+keys == 0:
		return key, route.keyMissing()
	case len(tokens) > 0 && len(tokens)+keys > 1:
		return key, malformed(TokenHeader, "one header field belongs here, not %d", len(tokens)+keys)
	case len(tokens) == 1 && !names.Token.MatchString(tokens[0]):
		return key, malformed(TokenHeader, "%s is one token, 1 to %d characters, as it was issued", TokenHeader, maxKey)
	}
	text := ""
	if len(tokens) == 0 {
		if text, err = keyInHeaders(r, header); err != nil {
			return key, err
		}
	}
	who, err := principal(r)
	if err != nil {
		return key, err
	}
	if len(tokens) == 1 {
		return IssuedToken(who, tokens[0]), nil
	}
	return Key{Principal: who, Scope: space, ID: text}.named(), nil
}

// keyInHeaders reads the key of a request in one header, or in several together, each of which has
// to be there once.
func keyInHeaders(r *http.Request, header string) (string, error) {
	var parts []string
	for name := range strings.SplitSeq(header, KeyJoint) {
		values := r.Header.Values(name)
		if len(values) != 1 {
			return "", malformed(name, "%s belongs here, once and not %d times", http.CanonicalHeaderKey(name), len(values))
		}
		part, err := parseHeader(name, values[0])
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return composed(parts), nil
}

// KeyJoint stands between the names of headers that are one key together.
const KeyJoint = " + "

// composed is the key of several parts. No part has a control character.
func composed(parts []string) string { return strings.Join(parts, "\x00") }

// headersIn lists the names in key headers.
func headersIn(keyHeaders []string) (names []string) {
	for _, one := range keyHeaders {
		names = append(names, strings.Split(one, KeyJoint)...)
	}
	return names
}

// keyMissing is the refusal of a request without a key.
func (r Route) keyMissing() error {
	ways, field := r.headers(), ""
	if len(r.KeyHeaders) > 0 {
		field = http.CanonicalHeaderKey(headersIn(r.KeyHeaders)[0])
	}
	if len(r.KeyFromBody) > 0 {
		ways, field = append(ways, strings.Join(r.KeyFromBody, KeyJoint)+" of the payload"), "body"+r.KeyFromBody[0]
	}
	if field == "" {
		return fmt.Errorf("%w; this route takes %s", ErrKeyMissing, strings.Join(ways, " or "))
	}
	return &fieldError{ErrKeyMissing, field, "the request has no key; this route takes " + strings.Join(ways, " or ")}
}

// fieldError is a refusal for a part of the request that is wrong.
type fieldError struct {
	kind        error
	field, text string
}

func (e *fieldError) Error() string { return "idempotency: " + e.text }
func (e *fieldError) Unwrap() error { return e.kind }

// malformed is the refusal of what a header of the request has for a key.
func malformed(header, format string, values ...any) error {
	return &fieldError{ErrKeyMalformed, http.CanonicalHeaderKey(header), "malformed key: " + fmt.Sprintf(format, values...)}
}

// takesUsualHeader reports whether the key can be in Idempotency-Key without being named for it:
// not where the route says that it is in the payload, since a proxy or a library may add one of its
// own to each attempt.
func (r Route) takesUsualHeader() bool { return len(r.KeyFromBody) == 0 }

// keyHeader is the first header of the route that a request has a key in, or the first ones that
// are a key together; fields is how many it has of these.
func (r Route) keyHeader(request *http.Request) (names string, fields int) {
	for _, names := range r.KeyHeaders {
		for name := range strings.SplitSeq(names, KeyJoint) {
			fields += len(request.Header.Values(name))
		}
		if fields > 0 {
			return names, fields
		}
	}
	if !r.takesUsualHeader() {
		return "", 0
	}
	return KeyHeader, len(request.Header.Values(KeyHeader))
}

// headers lists the headers that a route takes; a request has one of them.
func (r Route) headers() (names []string) {
	if r.Accept != AcceptKey {
		names = append(names, TokenHeader)
	}
	if r.Accept != AcceptToken {
		for _, one := range r.KeyHeaders {
			parts := strings.Split(one, KeyJoint)
			for i, part := range parts {
				parts[i] = http.CanonicalHeaderKey(part)
			}
			names = append(names, strings.Join(parts, KeyJoint))
		}
		if r.takesUsualHeader() {
			names = append(names, KeyHeader)
		}
	}
	return names
}

// parseHeader reads the key of a header. One that is not Idempotency-Key is taken as it stands.
func parseHeader(header, value string) (string, error) {
	if strings.EqualFold(header, KeyHeader) {
		return parseKey(value)
	}
	if !printable.MatchString(value) {
		return "", malformed(header, "%s is 1 to %d characters of printable ASCII", http.CanonicalHeaderKey(header), maxKey)
	}
	return value, nil
}

// printable is a key in a header of the sender's own.
var printable = names.NewForm(" -~", 1, maxKey)

// OptionalKey reads a request's Idempotency-Key for an operation that does not need one: "" if
// there is none, ErrKeyMalformed if it is not a key.
func OptionalKey(r *http.Request) (string, error) {
	switch keys := r.Header.Values(KeyHeader); len(keys) {
	case 0:
		return "", nil
	case 1:
		return parseKey(keys[0])
	default:
		return "", malformed(KeyHeader, "one header field belongs here, not %d", len(keys))
	}
}

// parseKey reads an Idempotency-Key: an RFC 8941 string, or the same without its quotes if it
// cannot be a list, or have parameters or trailing text.
func parseKey(value string) (string, error) {
	if bare(value) {
		return value, nil
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", malformed(KeyHeader, "%s is an RFC 8941 string", KeyHeader)
	}
	key, ok := item.Value.(string)
	if !ok || len(item.Params.Names()) > 0 || key == "" || len(key) > maxKey {
		return "", malformed(KeyHeader, "%s is one string of 1 to %d characters, without parameters", KeyHeader, maxKey)
	}
	return key, nil
}

// HeaderPrincipal identifies the caller by request headers, for [Config].Principal: a digest of
// their values, "" if none of them is there. An empty value is none. Authorization is safe by
// itself, since a caller without the credential cannot be taken for its owner; but a client that
// repeats a request with a renewed credential is another principal then, and its request runs
// again: for bearer tokens that are renewed there is package jwtprincipal. A header that a trusted
// proxy sets, such as X-User-Id, has neither fault, as long as no request bypasses the proxy.
// Without names all callers are the same principal: [Config].OneCaller says that this is meant. It
// never returns an error.
func HeaderPrincipal(headers ...string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		var values []string
		for _, name := range headers {
			name = http.CanonicalHeaderKey(name)
			of := slices.DeleteFunc(slices.Clone(valuesOf(r, name)), isEmpty)
			values = append(append(values, name, strconv.Itoa(len(of))), of...)
		}
		if len(values) == 2*len(headers) { // none of them is there
			return "", nil
		}
		return names.Digest(values...), nil
	}
}

func isEmpty(value string) bool { return value == "" }
