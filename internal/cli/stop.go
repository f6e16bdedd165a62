package cli

import (
	"log/slog"
	"time"
)

// stopWithin is how long requests under way may take to end at a stop. One that cuts off what a
// request may do is warned of.
func (c *config) stopWithin(log *slog.Logger) time.Duration {
	if c.stopTimeout > 0 && c.stopTimeout < c.requestTimeout {
		log.Warn("a stop does not wait for the longest request: what it does is cut off", "stop_timeout", c.stopTimeout, "request_timeout", c.requestTimeout,
			"fix", "raise stop-timeout, or leave it out")
	}
	return c.stopTimeout
}
