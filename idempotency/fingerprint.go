package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
)

// takeBody reads a request's body up to a limit while it hashes it, and puts it back for the handler. It returns the request's fingerprint: SHA-256
// over method, route, path with query, and body, as 43 characters.
func takeBody(r *http.Request, route string, limit int64) (string, error) {
	sum := sha256.New()
	for _, part := range []string{r.Method, route, r.URL.RequestURI()} {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	body, err := hashed(sum, r.Body, limit)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
}

// hashed reads a body and leaves it to the server to close: it knows best what to do with a rest that nobody has read.
func hashed(sum hash.Hash, body io.ReadCloser, limit int64) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	read, err := io.ReadAll(io.TeeReader(io.LimitReader(body, limit+1), sum))
	var cut *http.MaxBytesError
	if errors.As(err, &cut) || int64(len(read)) > limit {
		return nil, fmt.Errorf("%w: %d bytes at most", ErrBodyTooLarge, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBodyCut, err)
	}
	return read, nil
}
