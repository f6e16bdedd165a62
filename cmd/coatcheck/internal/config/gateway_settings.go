package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/gateway"
)

// Gateway is the gateway's settings. Those that it shares with the service are in Service.
type Gateway struct {
	*Service

	Gateway       gateway.Config
	UpstreamGiven bool
}

// Config returns the gateway's configuration, shared settings included.
func (c *Gateway) Config() gateway.Config {
	g, shared := c.Gateway, c.Server
	g.AccessLog, g.AuditLog = shared.AccessLog, shared.AuditLog
	g.TokenKeys, g.AnswerKeys, g.KeepOpen = shared.TokenKeys, shared.AnswerKeys, shared.KeepOpen
	g.IdleTimeout, g.MaxPerAddress, g.MaxBytes = shared.IdleTimeout, shared.MaxPerAddress, shared.MaxBytes
	g.DrainDelay, g.StopTimeout = shared.DrainDelay, shared.StopTimeout
	g.OneCaller = c.OneCaller()
	g.UpstreamIdle = max(g.UpstreamIdle, 1) // 0 would be the default
	return g
}

// GatewaySettings is the table of the gateway. Store, keys, log and stop are as the service's.
func GatewaySettings(c *Gateway) []*Setting {
	return append(In("Gateway",
		upstreamSetting("upstream", "the service to guard: http://host:port, https://host:port or unix:///path/to/socket", c),
		Hot(Text("routes", "", "file", "what to guard, and how: a YAML file, see docs/gateway.md. It is read again when it changes, and "+
			"on SIGHUP", &c.Gateway.RoutesFile)),
		Address("listen", "127.0.0.1:8081", "where clients come in; port 0 takes a free one", &c.Listen),
		Address("admin-listen", "127.0.0.1:8082", "where /livez, /readyz, /metrics and /debug/pprof/ are for the operator, not for clients; on "+
			"loopback, unless --insecure is said", &c.AdminListen),
		Hot(HostNames("allowed-hosts", "names under which clients ask, beside every address and localhost, such as shop.example or "+
			"*.example.com; * is every name; empty: every name at --listen, no other at --admin-listen", &c.Gateway.AllowedHosts)),
		Toggle("insecure", "lets other machines reach the admin side, which asks for no key", &c.Insecure),
		Headers("principal-headers", defaultPrincipal, "who is asking, by these headers: keys and tokens of two principals never meet; "+
			"none: all callers are the same", &c.PrincipalHeaders),
		Toggle("trust-forwarded", "keeps the X-Forwarded headers of requests: only behind a proxy that writes them itself",
			&c.Gateway.TrustForwarded),
		Toggle("preserve-host", "sends the client's Host to the upstream, as X-Forwarded-Host too, instead of the upstream's own",
			&c.Gateway.PreserveHost),
		Headers("pass-headers", "", "headers of clients that the upstream gets though the gateway drops them: names with other characters "+
			"than letters, digits and hyphens, and those that make frameworks take another path, method or prefix", &c.Gateway.PassHeaders),
		serviceURL("token-service", "where clients find /token/{token} and /operation/{operation}; empty: tokens at the gateway's own "+
			"address, and no link to operations", &c.Gateway.TokenService),
		Span("upstream-idle-timeout", spelled(gateway.DefaultUpstreamIdle), 0, time.Hour,
			"how long an unused connection for guarded requests is kept: less than the upstream keeps it; 0, and all below 10ms: "+
				"none is kept",
			&c.Gateway.UpstreamIdle),
		Span("body-timeout", spelled(gateway.DefaultBodyTimeout), 100*time.Millisecond, time.Hour,
			"how long the body of a guarded request may take to arrive", &c.Gateway.BodyTimeout),
	), shared(c.Service)...)
}

// shared picks the settings that the gateway has in common with the service.
func shared(c *Service) []*Setting {
	common := []string{"redis", "profiles", "ack", "restarts", "max-bytes", "prefix", "store-timeout",
		"principal-jwt-jwks", "principal-jwt-claim", "principal-jwt-issuer", "principal-jwt-audience", "principal-jwt-algorithms",
		"principal-jwt-leeway",
		"token-keys", "answer-keys", "keep-open", "drain-delay", "stop-timeout", "idle-timeout", "max-connections", "max-connections-per-address",
		"max-bytes-in-flight", "trace-endpoint", "trace-sample", "access-log", "audit-log", "log-format", "log-level"}
	return slices.DeleteFunc(ServiceSettings(c), func(s *Setting) bool { return !slices.Contains(common, s.Name) })
}

func upstreamSetting(name, help string, into *Gateway) *Setting {
	return &Setting{Name: name, Unit: "URL", Help: help, Parse: func(s string) (err error) {
		if s != "" {
			into.Gateway.Upstream, err = gateway.ParseUpstream(s)
			into.UpstreamGiven = err == nil
		}
		return err
	}}
}

// serviceURL is the URL of another service, without a slash at its end; empty = none.
func serviceURL(name, help string, into *string) *Setting {
	return &Setting{Name: name, Unit: "URL", Help: help, Parse: func(s string) error {
		target, err := url.Parse(s)
		bare := err == nil && target.Host != "" && target.User == nil && target.RawQuery == ""
		if err != nil || s != "" && (!bare || target.Scheme != "http" && target.Scheme != "https") {
			return errors.New("not a URL such as https://tokens.example")
		}
		*into = strings.TrimRight(s, "/")
		return nil
	}}
}

// CheckTogether finds settings that do not go together.
func (c *Gateway) CheckTogether() error {
	return errors.Join(c.CheckStore(), c.checkUpstream(), c.checkPrincipal(), c.CheckAdmin())
}

// checkUpstream refuses the gateway's own address, where each request would come in again.
func (c *Gateway) checkUpstream() error {
	host, port, err := net.SplitHostPort(c.Listen)
	target, wrong := url.Parse(c.Gateway.Upstream.String())
	if err != nil || wrong != nil || target.Port() != port || port == "0" {
		return nil //nolint:nilerr // it is told already
	}
	everywhere := host == "" || net.ParseIP(host).IsUnspecified()
	if name := target.Hostname(); name == host || everywhere && IsLoopback(name) || name == "localhost" && IsLoopback(host) {
		return fmt.Errorf("upstream: %s is where clients come in (listen): give the address of the service itself, or another one to "+
			"--listen", target.Host)
	}
	return nil
}

// Check reads the routes file, and finds missing settings; the file alone needs no upstream.
func (c *Gateway) Check(only bool) (routes gateway.Routes, err error) {
	if !c.UpstreamGiven && !only {
		err = errors.New("upstream: missing or wrong; the service to guard, such as --upstream http://127.0.0.1:3000")
	}
	if c.Gateway.RoutesFile == "" {
		return routes, errors.Join(err, errors.New("routes: missing; a file such as --routes routes.yaml says what to guard"))
	}
	text, unread := os.ReadFile(c.Gateway.RoutesFile)
	if unread != nil {
		return routes, errors.Join(err, fmt.Errorf("routes: %w", unread))
	}
	routes, faults := gateway.ParseRoutes(text)
	if faults == nil {
		faults = errors.Join(routes.CheckKeys(), routes.CheckHosts(c.Gateway.PreserveHost, c.Gateway.AllowedHosts))
	}
	if faults != nil {
		faults = fmt.Errorf("%s: %s", c.Gateway.RoutesFile, strings.ReplaceAll(faults.Error(), "\n", "\n"+c.Gateway.RoutesFile+": "))
	}
	return routes, errors.Join(err, faults, c.checkTokenKeys())
}
