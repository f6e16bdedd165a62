package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/redisstore"
)

func openListener(c *config.Service, log *slog.Logger) (net.Listener, *config.Certificates, error) {
	for _, missing := range c.Exposed() {
		log.Warn("insecure: other machines can reach this service", "listen", c.Listen, "fix", missing)
	}
	secure, err := c.OpenTLS(log)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		secure.Close()
		return nil, nil, fmt.Errorf("%w; choose another address with --listen, or --listen 127.0.0.1:0 for a free port", err)
	}
	return secure.Around(frontdoor.Plain(listener)), secure, nil
}

// openAccess opens the access policy; nil if access is not controlled.
func openAccess(ctx context.Context, c *config.Service, store *redisstore.Store, log *slog.Logger) (*access.Policy, error) {
	if !c.Controlled() {
		return nil, nil //nolint:nilnil // without a policy every caller may do everything
	}
	config := c.Access
	config.Logger = log
	if c.AccessStore {
		config.Store = store
	}
	return access.Open(ctx, config)
}
