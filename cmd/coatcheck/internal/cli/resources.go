package cli

import (
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

// beside is how many file descriptors are kept for connections to Redis and an upstream, and files.
const beside = 256

// connections is how many clients may be connected: the setting, but no more than the process has
// file descriptors for. A process without free ones could not reach Redis either.
func connections(c *config.Service, log *slog.Logger) int {
	descriptors, known := descriptorLimit()
	room := max(int(min(descriptors, 1<<30))-beside, 1)
	if !known || c.Server.MaxConnections <= room {
		return c.Server.MaxConnections
	}
	log.Warn("fewer connections than max-connections says: the process may not have more file descriptors open", "connections", room,
		"descriptors", descriptors,
		"fix", "raise the limit (ulimit -n, LimitNOFILE), or set max-connections")
	return room
}

// stopWithin is how long requests may take to end at a stop. It warns if one may take longer.
func stopWithin(c *config.Service, log *slog.Logger) time.Duration {
	if c.Server.StopTimeout > 0 && c.Server.StopTimeout < c.Server.RequestTimeout {
		log.Warn("a stop does not wait for the longest request: what it does is cut off", "stop_timeout", c.Server.StopTimeout,
			"request_timeout", c.Server.RequestTimeout,
			"fix", "raise stop-timeout, or leave it out")
	}
	return c.Server.StopTimeout
}

// mostSpare is the most that spareHeap sets aside, in bytes.
const mostSpare = 16 << 20

// spareHeap is memory that is never touched, so that the machine provides none, but that the
// garbage collector counts as in use. The collector runs when what is in use has doubled. A service
// has a few megabytes in use and makes garbage with each request: with this it collects a fifth as
// often. Where memory is limited (GOMEMLIMIT), it is an eighth of that at most.
func spareHeap() []byte {
	return make([]byte, min(mostSpare, debug.SetMemoryLimit(-1)/8))
}
