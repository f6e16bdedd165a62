package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// takeBody reads a request's body up to the route's limit while it hashes it, and puts it back for
// the handler. It returns the request's fingerprint: SHA-256 over method, route, path with query,
// the route's headers and the body, as 43 characters.
func takeBody(r *http.Request, name string, route Route) (string, error) {
	sum := sha256.New()
	note(sum, r.Method, name, target(r))
	for _, header := range route.Headers {
		note(sum, append([]string{http.CanonicalHeaderKey(header)}, valuesOf(r, header)...)...)
	}
	canonical := route.CanonicalJSON && isJSON(r.Header.Get("Content-Type"))
	into := io.Writer(sum)
	if canonical {
		into = io.Discard
	}
	body, err := readBody(into, r.Body, route.MaxBody)
	if err != nil {
		return "", err
	}
	if canonical {
		_, _ = sum.Write(canonicalJSON(body)) // a hash takes everything
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
}

// target is the path with the query as the client sent them, before [http.StripPrefix] and others
// changed the URL: two mounts of one handler are two operations.
func target(r *http.Request) string {
	if r.RequestURI == "" { // the request did not come from a server
		return r.URL.RequestURI()
	}
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil && sent.IsAbs() {
		return sent.RequestURI()
	}
	return r.RequestURI
}

// valuesOf are the values of a request's header; net/http keeps Host elsewhere.
func valuesOf(r *http.Request, header string) []string {
	if strings.EqualFold(header, "Host") {
		return []string{r.Host}
	}
	return r.Header.Values(header)
}

// note adds parts to a hash so that no other parts give the same, as netstrings.
func note(sum hash.Hash, parts ...string) {
	var space [256]byte // on the stack, for parts of the usual length
	text := space[:0]
	for _, part := range parts {
		text = appendText(text, part)
	}
	_, _ = sum.Write(text) // a hash takes everything
}

// readBody reads a body and leaves closing it to the server, which handles an unread rest best.
func readBody(into io.Writer, body io.ReadCloser, limit int64) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	read, err := io.ReadAll(io.TeeReader(io.LimitReader(body, limit+1), into))
	var cut *http.MaxBytesError
	if errors.As(err, &cut) || int64(len(read)) > limit {
		return nil, fmt.Errorf("%w: %d bytes at most", ErrBodyTooLarge, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBodyCut, err)
	}
	return read, nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// canonicalJSON returns a JSON text as RFC 8785 writes it, without white space and with sorted
// names, so that two texts of one value are equal. It differs in one place: a number keeps all its
// digits, since RFC 8785 takes 9007199254740993 and 9007199254740992 for one number, and they may
// be two payments. A text that is not JSON, or not I-JSON (RFC 7493), such as one with a name
// twice, comes back unchanged.
func canonicalJSON(text []byte) []byte {
	value := jsontext.Value(bytes.Clone(text))
	err := value.Format(jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.PreserveRawStrings(false), jsontext.ReorderRawObjects(true))
	if err != nil {
		return text
	}
	return exactNumbers(value)
}
