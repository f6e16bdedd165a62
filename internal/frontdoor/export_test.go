package frontdoor

import (
	"context"
	"net"
)

// Quiet is how many connections have no request under way.
func (d *Door) Quiet() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := 0
	for of := range d.quiet {
		all += d.quiet[of].Len()
	}
	return all
}

// Unsent is how many answers wait for their clients to take them.
func (d *Door) Unsent() int {
	d.bodiesMu.Lock()
	defer d.bodiesMu.Unlock()
	return len(d.unsent)
}

// From is the context of a request that came on a connection.
func (d *Door) From(ctx context.Context, conn net.Conn) context.Context {
	return withConn(ctx, d.wrapped(conn))
}
