package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/noupgrade"
)

func (p *program) healthcheckCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck healthcheck --listen 127.0.0.1:8080",
		Use:     "healthcheck", Short: "Ask a running service whether it is ready; exit code 0 if so", Args: noArgs,
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
	web := &http.Client{
		Transport:     noupgrade.Transport{Next: &http.Transport{TLSClientConfig: secure}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       healthcheckTimeout,
	}
	defer web.CloseIdleConnections()
	url := c.Scheme() + reachable(c.Listen) + "/readyz"
	status, body, err := fetch(ctx, web, url)
	if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() {
		return fmt.Errorf("%s has not answered whole within %v: look into the log of the service there, or whether --listen is its address",
			url, healthcheckTimeout)
	}
	if err != nil {
		return fmt.Errorf("not reachable: %w", err)
	}
	// that of the service; the gateway's has these fields as well
	var said api.Readiness
	switch err := json.Unmarshal(body, &said); {
	case err != nil || said.Store == "":
		return fmt.Errorf("%s is not a coatcheck: it answers %s: --listen is the address of the service, or of the gateway's --admin-listen",
			url, status)
	case !strings.HasPrefix(status, "200") || !said.Ready:
		return fmt.Errorf("not ready: %s %s", status, body)
	}
	_, err = io.WriteString(p.stdout, printable(string(body)))
	return err
}

// healthcheckTimeout bounds the whole question: Docker has a limit of its own, which says nothing.
const healthcheckTimeout = 5 * time.Second

func fetch(ctx context.Context, web *http.Client, url string) (status string, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", nil, err
	}
	response, err := web.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = response.Body.Close() }() // read as far as it is wanted
	body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.Status, body, err
}
