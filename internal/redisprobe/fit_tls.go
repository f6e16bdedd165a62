package redisprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redisconn"
)

// unfitTLS finds a port that speaks TLS where the URL does not, or speaks none where it does: a
// server waits for more then, or ends the connection, and says nothing of why. failed is how it was
// not understood; what it has answered needs no other question. at names the server.
func (i *inspector) unfitTLS(ctx context.Context, options *redis.Options, at string, failed error) error {
	if _, answered := errors.AsType[redis.Error](failed); failed == nil || answered || options.Network == "unix" {
		return nil
	}
	// the question that failed may have taken all of its time
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), options.DialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", options.Addr)
	if err != nil {
		return nil // it is away
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	switch {
	case options.TLSConfig != nil && speaksPlainly(conn):
		return &UnfitError{at, "speaks no TLS at this port", i.otherScheme(options.Addr) + ", or the port of its tls-port"}
	case options.TLSConfig == nil && speaksTLS(ctx, conn):
		return &UnfitError{at, "speaks TLS at this port", i.otherScheme(options.Addr) + " (tls_ca names a CA that the system does not trust)"}
	}
	return nil
}

// speaksPlainly reports whether a server answers a command without TLS, be it with a refusal.
func speaksPlainly(conn net.Conn) bool {
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 1)
	_, err := conn.Read(answer)
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// speaksTLS reports whether a server takes a handshake, or refuses it in words of TLS. Nothing that
// is secret is sent to it, so that its certificate needs no proof.
func speaksTLS(ctx context.Context, conn net.Conn) bool {
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // as above
	_, refused := errors.AsType[tls.AlertError](err)
	return err == nil || refused
}

// otherScheme is the setting with TLS where the URL has none, and without where it has.
func (i *inspector) otherScheme(addr string) string {
	secure := i.target.Security == nil
	switch {
	case i.target.Mode == redisconn.Standalone && secure:
		return "--redis rediss://" + addr
	case i.target.Mode == redisconn.Standalone:
		return "--redis redis://" + addr
	case secure:
		return "?tls=true in --redis"
	}
	return "no tls=true in --redis"
}
