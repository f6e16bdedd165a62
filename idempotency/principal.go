package idempotency

import (
	"net/http"
	"strconv"

	"github.com/coatcheck/coatcheck/internal/names"
)

// HeaderPrincipal identifies the caller by request headers, for [Config].Principal: a digest of
// their values, "" if none of them is there. Authorization is safe by itself, since a caller
// without the credential cannot be taken for its owner; but a client that repeats a request with a
// renewed credential is another principal then, and its request runs again: for bearer tokens that
// are renewed there is package jwtprincipal. A header that a trusted proxy sets, such as X-User-Id,
// has neither fault, as long as no request bypasses the proxy. Without names all callers are the
// same principal. It never returns an error.
func HeaderPrincipal(headers ...string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		var values []string
		for _, name := range headers {
			name = http.CanonicalHeaderKey(name)
			of := valuesOf(r, name)
			values = append(append(values, name, strconv.Itoa(len(of))), of...)
		}
		if len(values) == 2*len(headers) { // none of them is there
			return "", nil
		}
		return names.Digest(values...), nil
	}
}
