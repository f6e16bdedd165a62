package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/watch"
)

// lastWords is how long requests ended by force may take to tell their client and the store.
const lastWords = 5 * time.Second

// Serve answers clients on one listener and the gateway's own side on the other until the context
// ends, and watches the routes file. Then it stops in good order: /readyz answers 503 and every
// answer ends its connection, a short wait for load balancers to see it, no new connections,
// requests under way end, also those whose client has gone. Serve ends what has not ended within
// [Config.StopTimeout]: upgraded connections and streams are closed, and the tokens of guarded
// requests are in doubt at once. The caller closes the store after that.
func (g *Gateway) Serve(ctx context.Context, clients, admin net.Listener) error {
	web := g.server(g.door, g)
	// so that what is left at the end can be ended
	web.BaseContext = func(net.Listener) context.Context { return g.hard }
	beside := g.config.door(frontdoor.DefaultMaxConnections)
	side := g.server(beside, g.Admin())
	defer watch.Every(g.config.WatchEvery, func(context.Context) { g.look() })()

	failed := make(chan error, 2)
	go func() { failed <- web.Serve(g.door.Around(clients)) }()
	go func() { failed <- side.Serve(beside.Around(admin)) }()
	select {
	case err := <-failed:
		return errors.Join(err, web.Close(), side.Close(), g.Close(context.WithoutCancel(ctx)))
	case <-ctx.Done():
	}
	return errors.Join(g.stop(context.WithoutCancel(ctx), web), side.Close())
}

func (g *Gateway) server(door *frontdoor.Door, handler http.Handler) *http.Server {
	server := door.Server(handler)
	// it would quote what clients send
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	return server
}

func (g *Gateway) stop(ctx context.Context, web *http.Server) error {
	g.draining.Begin(g.door, int(g.working.Load()), g.config.DrainDelay, g.stopTimeout())
	patient, cancel := context.WithTimeout(ctx, g.stopTimeout())
	defer cancel()
	err := g.door.Stop(patient, web)
	if g.answered(patient) != nil {
		g.log.Warn("the time to stop is over; requests under way are ended")
	}
	g.end(errStopping)
	last, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	_ = g.answered(last)
	// an answer that is given is not sent yet: net/http writes it after the handler
	_ = web.Shutdown(last)
	err = errors.Join(err, g.door.Cut(web)) // what does not even end now is cut off
	closing, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	return errors.Join(err, g.Close(closing))
}

// answered waits until no request is under way, or the context ends.
func (g *Gateway) answered(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for g.working.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
