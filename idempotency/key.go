package idempotency

import (
	"fmt"
	"net/http"

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
	TokenOrKey Accept = "either" // the default
	TokenOnly  Accept = "token"
	KeyOnly    Accept = "key"
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
func keyOf(r *http.Request, route Route, principal func(*http.Request) (string, error), name string) (OperationKey, error) {
	tokens, header, keys := r.Header.Values(TokenHeader), "", []string(nil)
	if route.Accept == KeyOnly {
		tokens = nil
	}
	// an issued token says more than a key that a browser or a library has added
	if len(tokens) != 1 {
		header, keys = route.ownKeys(r)
	}
	switch {
	case len(tokens)+len(keys) == 0:
		return OperationKey{}, route.keyMissing()
	case len(tokens)+len(keys) > 1:
		return OperationKey{}, fmt.Errorf("%w: one header field belongs here, not %d", ErrKeyMalformed, len(tokens)+len(keys))
	case len(tokens) == 1:
		if !names.Token.MatchString(tokens[0]) {
			return OperationKey{}, fmt.Errorf("%w: %s is one token, 1 to %d characters, as it was issued", ErrKeyMalformed, TokenHeader, maxKey)
		}
		who, err := principal(r)
		if err != nil {
			return OperationKey{}, err
		}
		return IssuedToken(who, tokens[0]), nil
	}
	key, err := readKey(header, keys[0])
	if err != nil {
		return OperationKey{}, err
	}
	who, err := principal(r)
	if err != nil {
		return OperationKey{}, err
	}
	return ClientKey(who, name, key), nil
}

// OptionalKey reads a request's Idempotency-Key for an operation that does not need one: "" if
// there is none, ErrKeyMalformed if it is not a key.
func OptionalKey(r *http.Request) (string, error) {
	switch keys := r.Header.Values(KeyHeader); len(keys) {
	case 0:
		return "", nil
	case 1:
		return parseKey(keys[0])
	default:
		return "", fmt.Errorf("%w: one header field belongs here, not %d", ErrKeyMalformed, len(keys))
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
		return "", fmt.Errorf("%w: %s is an RFC 8941 string", ErrKeyMalformed, KeyHeader)
	}
	key, ok := item.Value.(string)
	if !ok || len(item.Params.Names()) > 0 || key == "" || len(key) > maxKey {
		return "", fmt.Errorf("%w: %s is one string of 1 to %d characters, without parameters", ErrKeyMalformed, KeyHeader, maxKey)
	}
	return key, nil
}
