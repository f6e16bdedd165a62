package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

const (
	maxPointer = 200  // characters of a JSON Pointer
	maxBodyKey = 1024 // bytes of a key in a payload
)

// validPointer reports whether a text leads into a payload; "" is none.
func validPointer(text string) bool {
	return text == "" || len(text) <= maxPointer && text[0] == '/' && jsontext.Pointer(text).IsValid()
}

// looksIntoBody reports whether the key of a request is looked for in its body; err is why no
// header has it.
func (g *guard) looksIntoBody(r *http.Request, err error) bool {
	passes := g.route.PassSafe && muxpattern.IsSafe(r.Method)
	return g.route.KeyFromBody != "" && errors.Is(err, ErrKeyMissing) && !passes
}

// takeKey reads a request's body, as takeBody does, and the key in it. The fingerprint is of all
// but the body.
func (g *guard) takeKey(r *http.Request, name string) (key OperationKey, fingerprint string, err error) {
	if _, err := takeBody(r, name, g.route); err != nil {
		return key, "", err
	}
	body := make([]byte, r.ContentLength)
	_, _ = r.Body.(*sentBody).ReadAt(body, 0) // it is all there
	text, err := keyIn(body, g.route)
	if err != nil {
		return key, "", err
	}
	rest := *r
	rest.Body, rest.ContentLength, rest.PostForm = nil, 0, nil
	if fingerprint, err = takeBody(&rest, name, g.route); err != nil {
		return key, "", err
	}
	who, err := g.principal(r)
	return ClientKey(who, name, text), fingerprint, err
}

// keyIn finds the key in a payload.
func keyIn(body []byte, route Route) (string, error) {
	value, found, err := valueAt(body, jsontext.Pointer(route.KeyFromBody))
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: the payload, whose %s is the key, is not JSON: %w", ErrKeyMalformed, route.KeyFromBody, err)
	case !found:
		return "", fmt.Errorf("%w; this route takes %s, or %s of the payload", ErrKeyMissing, strings.Join(route.headers(), " or "), route.KeyFromBody)
	}
	var text string
	switch value.Kind() {
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, value) // it was read as JSON
		text = string(unquoted)
	case '0':
		text = string(value)
		if strings.ContainsAny(text, ".eE") {
			return "", malformedIn(route)
		}
	default:
		return "", malformedIn(route)
	}
	if len(text) < 1 || len(text) > maxBodyKey || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", malformedIn(route)
	}
	return text, nil
}

func malformedIn(route Route) error {
	return fmt.Errorf("%w: %s of the payload is the key: a text of 1 to %d bytes without control characters, or a whole number", ErrKeyMalformed,
		route.KeyFromBody, maxBodyKey)
}

// valueAt finds the value to which a pointer leads in a JSON text (RFC 8259, I-JSON: each name
// once).
func valueAt(text []byte, pointer jsontext.Pointer) (value jsontext.Value, found bool, err error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	if value, err = decoder.ReadValue(); err != nil {
		return nil, false, err
	}
	value = value.Clone()
	if _, err := decoder.ReadToken(); err == nil {
		return nil, false, errors.New("there is more after its value")
	}
	for token := range pointer.Tokens() {
		if value, found = child(value, token); !found {
			return nil, false, nil
		}
	}
	return value, true, nil
}

// child is a member of an object, or an element of an array, of a value that was read before.
func child(of jsontext.Value, name string) (jsontext.Value, bool) {
	decoder := jsontext.NewDecoder(bytes.NewReader(of))
	begin, err := decoder.ReadToken()
	if err != nil || begin.Kind() != '{' && begin.Kind() != '[' {
		return nil, false
	}
	for n := 0; ; n++ {
		at := strconv.Itoa(n)
		switch kind := decoder.PeekKind(); {
		case kind == '}' || kind == ']' || kind == 0:
			return nil, false
		case begin.Kind() == '{':
			member, err := decoder.ReadToken()
			if err != nil {
				return nil, false
			}
			at = member.String()
		}
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, false
		}
		if at == name {
			return value.Clone(), true
		}
	}
}
