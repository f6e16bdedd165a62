package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

func (p *program) healthcheckCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "healthcheck", Short: "Ask a running service whether it is ready; exit code 0 if so", Args: noArgs,
		Long: "Ask the service on this machine, at --listen (or COATCHECK_LISTEN), for /readyz. For Docker's HEALTHCHECK, where no curl " +
			"is at hand.",
	}
	l := config.BindService(command.Flags())
	hideAllBut(command.Flags(), "listen", "tls-cert", "tls-key", "config")
	return p.loaded(command, l, func(c *cobra.Command, _ []string) error { return p.healthcheck(c.Context(), &l.Service) })
}

func (p *program) healthcheck(ctx context.Context, c *config.Service) error {
	var secure *tls.Config
	if c.TLSCert != "" {
		var err error
		if secure, err = c.TLSFiles().Itself(); err != nil {
			return err
		}
	}
	// and without the environment's proxy, which is not on this machine
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer web.CloseIdleConnections()
	url := c.Scheme() + reachable(c.Listen) + "/readyz"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := web.Do(request)
	if err != nil {
		return fmt.Errorf("not reachable: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // read as far as it is wanted
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s %s", response.Status, body)
	}
	_, err = p.stdout.Write(body)
	return err
}
