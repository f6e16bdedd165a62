// Package noupgrade is for clients that ask for no other protocol. net/http hands over the
// connection for any 101, and from then on neither a context nor a timeout ends a read of it
// (golang/go#44988). Its errors quote what is no HTTP, in which a server can repeat the secrets of
// the request.
package noupgrade

import (
	"errors"
	"net/http"
	"strings"
)

// ErrSwitched is the error of a request that was answered with another protocol.
var ErrSwitched = errors.New("the server switches to another protocol, which nobody has asked for")

// Transport is a transport that takes no other protocol.
type Transport struct{ Next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.Next.RoundTrip(r)
	switch {
	case err != nil && strings.Contains(err.Error(), `"`):
		return nil, unquoted{err}
	case err != nil || answer.StatusCode != http.StatusSwitchingProtocols:
		return answer, err
	}
	_ = answer.Body.Close() // the connection's end
	return nil, ErrSwitched
}

// unquoted is an error whose text ends before what it quotes.
type unquoted struct{ error }

func (u unquoted) Error() string {
	text, _, _ := strings.Cut(u.error.Error(), `"`)
	return strings.TrimRight(text, ": ")
}

func (u unquoted) Unwrap() error { return u.error }

// CloseIdleConnections closes those of the transport within, as [http.Client.CloseIdleConnections]
// asks for.
func (t Transport) CloseIdleConnections() {
	if closer, is := t.Next.(interface{ CloseIdleConnections() }); is {
		closer.CloseIdleConnections()
	}
}
