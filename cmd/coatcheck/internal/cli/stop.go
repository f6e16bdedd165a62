package cli

import (
	"log/slog"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

// stopWithin is how long requests may take to end at a stop. It warns if one may take longer.
func stopWithin(c *config.Service, log *slog.Logger) time.Duration {
	if c.Server.StopTimeout > 0 && c.Server.StopTimeout < c.Server.RequestTimeout {
		log.Warn("a stop does not wait for the longest request: what it does is cut off", "stop_timeout", c.Server.StopTimeout,
			"request_timeout", c.Server.RequestTimeout,
			"fix", "raise stop-timeout, or leave it out")
	}
	return c.Server.StopTimeout
}
