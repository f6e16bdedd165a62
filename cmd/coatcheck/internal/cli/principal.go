package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
)

// openPrincipal returns what tells callers apart. Keys of tokens that cannot be fetched now are a
// line in the log, and requests are refused until they can; a file without keys is an error.
func openPrincipal(ctx context.Context, c *config.Service, log *slog.Logger) (func(*http.Request) (string, error), error) {
	if c.PrincipalJWT.JWKS == "" {
		return idempotency.HeaderPrincipal(c.PrincipalHeaders...), nil
	}
	settings := c.PrincipalJWT
	settings.Logger = log
	callers, err := jwtprincipal.New(settings)
	if err != nil {
		return nil, configError(fmt.Errorf("principal-jwt-jwks: %w", err))
	}
	_ = callers.Load(ctx) // the log has the error
	return callers.Principal, nil
}

// whoCallersAre says, for the banner, what tells callers apart where access is not controlled.
func whoCallersAre(c *config.Service) string {
	switch headers := strings.Join(c.PrincipalHeaders, ", "); {
	case c.Controlled():
		return "by the owner of the key or the certificate"
	case c.PrincipalJWT.JWKS != "":
		return byToken(c.PrincipalJWT)
	case headers == "":
		return "all are the same"
	default:
		return "by what is sent as " + headers + ": a renewed credential is another caller, whose repeat runs again (--principal-jwt-jwks)"
	}
}

// byToken says that callers are known by their tokens.
func byToken(c jwtprincipal.Config) string {
	return fmt.Sprintf("by iss and %s of the verified bearer token, with the keys of %s", cmp.Or(c.Claim, jwtprincipal.DefaultClaim), c.JWKS)
}
