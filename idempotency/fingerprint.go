package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/internal/target"
)

// takeBody reads a request's body up to the route's limit, and puts it back for the handler. It
// returns the request's fingerprint: SHA-256 over method, route, path with query and the route's
// headers, as netstrings, and the body, as 43 characters.
func takeBody(r *http.Request, name string, route Route) (string, error) {
	text := make([]byte, 0, 128+min(max(r.ContentLength, 0), usualBody))
	text = appendText(appendText(appendText(text, r.Method), name), target.Of(r))
	for _, header := range route.Headers {
		text = appendText(text, http.CanonicalHeaderKey(header))
		for _, value := range valuesOf(r, header) {
			text = appendText(text, value)
		}
	}
	head := len(text)
	text, err := readBody(text, r.Body, route.MaxBody)
	if err != nil {
		return "", err
	}
	if len(text) == head && (r.ContentLength > 0 || len(r.PostForm) > 0) { // all would be the same
		return "", fmt.Errorf("%w: it was read before the guard: put the guard around what reads it, such as other middleware", ErrBodyCut)
	}
	sent := &sentBody{}
	sent.Reset(text[head:])
	r.Body, r.ContentLength, r.TransferEncoding = sent, int64(len(text)-head), nil
	if route.CanonicalJSON && isJSON(r.Header.Values("Content-Type")) {
		text = append(text[:head:head], canonicalJSON(text[head:])...)
	}
	sum := sha256.Sum256(unambiguous(text, head, r, route))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// unambiguous is the text of a fingerprint, whose body begins at head. Where it could be read in
// another way, since the body begins like a value of a header or a value is a header's name, it
// begins with the number of values of each header.
func unambiguous(text []byte, head int, r *http.Request, route Route) []byte {
	if len(route.Headers) == 0 {
		return text
	}
	isName := func(value string) bool {
		return slices.ContainsFunc(route.Headers, func(header string) bool { return http.CanonicalHeaderKey(header) == value })
	}
	numbers, isClear := []byte(","), len(text) == head || text[head] < '0' || text[head] > '9'
	for _, header := range route.Headers {
		values := valuesOf(r, header)
		numbers, isClear = appendNumber(numbers, len(values)), isClear && !slices.ContainsFunc(values, isName)
	}
	if isClear {
		return text
	}
	return append(numbers, text...)
}

// usualBody is how many bytes of a body are made room for before they have come.
const usualBody = 16 << 10

// sentBody is a body that has been read, for the handler.
type sentBody struct{ bytes.Reader }

// Close implements [io.Closer].
func (*sentBody) Close() error { return nil }

// valuesOf are the values of a request's header; net/http keeps Host elsewhere.
func valuesOf(r *http.Request, header string) []string {
	if strings.EqualFold(header, "Host") {
		return []string{r.Host}
	}
	return r.Header.Values(header)
}

// readBody appends a body to a text, and leaves closing it to the server, which handles an unread
// rest best.
func readBody(to []byte, body io.ReadCloser, limit int64) ([]byte, error) {
	if body == nil {
		return to, nil
	}
	head, limited := len(to), io.LimitReader(body, min(limit, math.MaxInt64-1)+1)
	var err error
	for err == nil {
		to = slices.Grow(to, 1)
		var n int
		n, err = limited.Read(to[len(to):cap(to)])
		to = to[:len(to)+n]
	}
	if outer, cut := errors.AsType[*http.MaxBytesError](err); cut {
		return nil, tooLarge(min(limit, outer.Limit))
	}
	if int64(len(to)-head) > limit {
		return nil, tooLarge(limit)
	}
	if err != io.EOF { // itself: one that wraps it is a cut body
		return nil, fmt.Errorf("%w: %w", ErrBodyCut, err)
	}
	return to, nil
}

func tooLarge(limit int64) error { return fmt.Errorf("%w: %d bytes at most", ErrBodyTooLarge, limit) }

// isJSON reports whether a request's one Content-Type is JSON in UTF-8, plainly: what a service may
// read in another way is compared as it stands.
func isJSON(contentTypes []string) bool {
	if len(contentTypes) != 1 {
		return false
	}
	media, parameters, err := mime.ParseMediaType(contentTypes[0])
	kind, format, _ := strings.Cut(media, "/")
	charset := strings.ToLower(parameters["charset"])
	return err == nil && kind != "" && (media == "application/json" || strings.HasSuffix(format, "+json")) &&
		slices.Contains([]string{"", "utf-8", "utf8"}, charset)
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
