package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

const (
	maxPointer = 200  // characters of a JSON Pointer
	maxBodyKey = 1024 // bytes of a key in a payload
)

// validPointer reports whether a text leads into a payload.
func validPointer(text string) bool {
	return text != "" && len(text) <= maxPointer && text[0] == '/' && jsontext.Pointer(text).IsValid()
}

// looksIntoBody reports whether the key of a request is looked for in its body; err is why no
// header has it.
func (g *guard) looksIntoBody(r *http.Request, err error) bool {
	passes := g.route.PassSafe && muxpattern.IsSafe(r.Method)
	return len(g.route.KeyFromBody) > 0 && errors.Is(err, ErrKeyMissing) && !passes
}

// takeKey reads a request's body, as takeBody does, and the key in it. The fingerprint is of all
// but the body.
func (g *guard) takeKey(r *http.Request, space string) (key Key, fingerprint string, err error) {
	if _, err := takeBody(r, space, g.route); err != nil {
		return key, "", err
	}
	body := make([]byte, r.ContentLength)
	_, _ = r.Body.(*sentBody).ReadAt(body, 0) // it is all there
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return key, "", malformed("Content-Encoding", "the key is in the payload, and a payload that is encoded is not decoded to find it")
	}
	text, err := keyIn(body, g.route)
	if err != nil {
		return key, "", err
	}
	rest := *r
	rest.Body, rest.ContentLength, rest.PostForm = nil, 0, nil
	if fingerprint, err = takeBody(&rest, space, g.route); err != nil {
		return key, "", err
	}
	who, err := g.principal(r)
	return Key{Principal: who, Scope: space, ID: text}.named(), fingerprint, err
}

// wholeNumber matches a JSON number that has one spelling.
var wholeNumber = lazyregexp.New(`^(0|-?[1-9][0-9]*)$`)

// keyIn finds the key in a payload.
func keyIn(body []byte, route Route) (string, error) {
	values, err := valuesAt(body, route.KeyFromBody)
	if err != nil {
		return "", &fieldError{ErrKeyMalformed, "body" + route.KeyFromBody[0],
			"malformed key: it is in the payload, which is not JSON with each name once: " + err.Error()}
	}
	var parts []string
	size := 0
	for i, at := range route.KeyFromBody {
		if values[i] == nil {
			return "", route.keyMissing()
		}
		part, ok := keyPart(values[i])
		if size += len(part); !ok || size > maxBodyKey {
			return "", &fieldError{ErrKeyMalformed, "body" + at, fmt.Sprintf("malformed key: %s of the payload is part of the key, "+
				"and has to be a text of 1 to %d bytes of UTF-8 without control characters, or a whole number", at, maxBodyKey)}
		}
		parts = append(parts, part)
	}
	return composed(parts), nil
}

// numberMark begins a number in a key: no text does.
const numberMark = "\x01"

// keyPart reads a value of a payload as part of a key. A number is another part than a text with
// its digits.
func keyPart(value jsontext.Value) (part string, ok bool) {
	switch value.Kind() {
	case '0':
		return numberMark + string(value), wholeNumber().Match(value)
	case '"':
		// half of a surrogate pair is an error: all halves would be one character
		text, err := jsontext.AppendUnquote(nil, value)
		return string(text), err == nil && len(text) > 0 && !bytes.ContainsFunc(text, unicode.IsControl)
	}
	return "", false
}

// valuesAt are the values at places of a JSON text, or the end of those that are an object or an
// array; nil where there is none. The whole text is read, since a name that comes twice would be
// two keys.
func valuesAt(text []byte, places []string) ([]jsontext.Value, error) {
	decoder, found := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true)), make([]jsontext.Value, len(places))
	for {
		before := decoder.InputOffset()
		_, err := decoder.ReadToken()
		_, values := decoder.StackIndex(0)
		if errors.Is(err, io.EOF) && decoder.StackDepth() == 0 && values == 1 {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if values > 1 {
			return nil, errors.New("there is more after its value")
		}
		for i, place := range places {
			depth := strings.Count(place, "/")
			if decoder.StackDepth() != depth || decoder.StackPointer() != jsontext.Pointer(place) {
				continue
			}
			// in an object an odd place is a name
			if kind, n := decoder.StackIndex(depth); kind != '{' || n%2 == 0 {
				found[i] = bytes.Trim(text[before:decoder.InputOffset()], " \t\r\n,:")
			}
		}
	}
}

// likelyPointer is what a place in another notation may mean, as "$.event.id" and "#/event/id".
func likelyPointer(text string) string {
	return "/" + strings.ReplaceAll(strings.TrimLeft(text, "#$./"), ".", "/")
}
