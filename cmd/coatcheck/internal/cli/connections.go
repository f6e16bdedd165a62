package cli

import (
	"log/slog"

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
