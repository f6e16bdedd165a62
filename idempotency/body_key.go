package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode"

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
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return key, "", malformed("Content-Encoding",
			"%s of the payload is the key, and a payload that is encoded is not decoded to find it", g.route.KeyFromBody)
	}
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

// wholeNumber matches a JSON number that has one spelling.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// keyIn finds the key in a payload.
func keyIn(body []byte, route Route) (string, error) {
	value, err := valueAt(body, jsontext.Pointer(route.KeyFromBody))
	field, malformed := "body"+route.KeyFromBody, "malformed key: "+route.KeyFromBody+" of the payload is the key"
	if err != nil {
		return "", &fieldError{ErrKeyMalformed, field, malformed + ", and it is not JSON in UTF-8 with each name once: " + err.Error()}
	}
	if value == nil {
		return "", route.keyMissing()
	}
	text := value.String()
	isKind := value.Kind() == '"' || value.Kind() == '0' && wholeNumber.MatchString(text)
	if !isKind || text == "" || len(text) > maxBodyKey || strings.ContainsFunc(text, unicode.IsControl) {
		return "", &fieldError{ErrKeyMalformed, field, fmt.Sprintf("%s: a text of 1 to %d bytes without control characters, or a whole number",
			malformed, maxBodyKey)}
	}
	return text, nil
}

// valueAt is the value at a place of a JSON text, or the end of one that is an object or an array;
// nil if there is none. The whole text is read, since a name that comes twice would be two keys.
func valueAt(text []byte, at jsontext.Pointer) (found *jsontext.Token, err error) {
	decoder, depth := jsontext.NewDecoder(bytes.NewBuffer(text)), strings.Count(string(at), "/")
	for {
		token, err := decoder.ReadToken()
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
		if decoder.StackDepth() != depth || decoder.StackPointer() != at {
			continue
		}
		if kind, n := decoder.StackIndex(depth); kind != '{' || n%2 == 0 { // else it is the name
			clone := token.Clone()
			found = &clone
		}
	}
}

// likelyPointer is what a place in another notation may mean, as "$.event.id" and "#/event/id".
func likelyPointer(text string) string {
	return "/" + strings.ReplaceAll(strings.TrimLeft(text, "#$./"), ".", "/")
}
