package idempotency

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// passes reports whether a request goes to the handler unguarded. The error is why it is refused
// instead. err is why it names no operation.
func (g *guard) passes(r *http.Request, err error) (bool, error) {
	if g.route.PassSafe && muxpattern.IsSafe(r.Method) {
		return true, nil
	}
	if other := g.otherHeader(r); other != nil {
		return false, other
	}
	if !errors.Is(err, ErrKeyMissing) || !g.route.Optional {
		return false, err
	}
	if r.ContentLength > g.route.MaxBody {
		return false, tooLarge(g.route.MaxBody)
	}
	return true, nil
}

// otherHeader refuses a request with an idempotency header that the route does not take: its client
// relies on a guard that is not there.
func (g *guard) otherHeader(r *http.Request) error {
	if g.route.Accept == AcceptEither || g.route.PassOther {
		return nil
	}
	takes, other := TokenHeader, KeyHeader
	if g.route.Accept == AcceptKey {
		takes, other = other, takes
	}
	if len(r.Header.Values(other)) > 0 {
		return fmt.Errorf("%w: this route takes %s, not %s", ErrKeyMalformed, takes, other)
	}
	return nil
}

// pass hands a request to the handler unguarded. The body of a request that could have been guarded
// is bounded all the same.
func (g *guard) pass(w http.ResponseWriter, r *http.Request) {
	couldBeGuarded := !g.route.PassSafe || !muxpattern.IsSafe(r.Method)
	if couldBeGuarded && r.Body != nil && r.Body != http.NoBody {
		r.Body = http.MaxBytesReader(w, r.Body, g.route.MaxBody)
	}
	g.next.ServeHTTP(w, r)
}
