package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/server"
)

// catchHangups keeps SIGHUP from ending the process. One that comes before onHangup waits for it.
func catchHangups() chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// onHangup reloads everything whenever the process gets SIGHUP, until it is stopped.
func onHangup(ctx context.Context, hangups chan os.Signal, reload func(context.Context)) (stop func()) {
	var reader sync.WaitGroup
	reader.Go(func() {
		for range hangups {
			reload(ctx)
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		reader.Wait()
	}
}

// changeable are the parts of a running service that can change.
type changeable struct {
	level   *slog.LevelVar
	book    *access.Policy
	secure  *config.Certificates
	service *server.Server
}

// reloadService returns how a service takes changed settings.
func reloadService(l *config.Sources, log *slog.Logger, at changeable) *config.Reloading {
	next := &config.Sources{}
	r := &config.Reloading{Sources: l, Log: log}
	r.Read = func() (*config.Sources, error) {
		next = &config.Sources{}
		err := l.Again(next, config.ServiceSettings(&next.Service))
		return next, errors.Join(err, next.Service.CheckStore(), next.Service.CheckTogether())
	}
	r.Fixed = func(name string) bool { return at.fixed(name, &next.Service) }
	r.Take = func(_ context.Context, changed []string) error {
		return at.take(changed, &l.Service, &next.Service)
	}
	if at.book != nil {
		r.Files = append(r.Files, config.Reloadable{Name: "access", Apply: at.book.Reload})
	}
	if at.secure != nil {
		r.Files = append(r.Files, config.Reloadable{Name: "certificates", Apply: at.secure.Reload})
	}
	return r
}

var (
	accessSettings = []string{"access", "access-keys", "rate", "burst"}
	tlsSettings    = []string{"tls-cert", "tls-key", "tls-client-ca", "tls-client-auth"}
)

// fixed reports whether a setting turns access control, or TLS, on or off: a slip must not.
func (a changeable) fixed(name string, next *config.Service) bool {
	switch {
	case slices.Contains(accessSettings, name):
		return (a.book == nil) == next.Controlled()
	case slices.Contains(tlsSettings, name):
		return (a.secure == nil) == (next.TLSCert != "")
	}
	return false
}

// take puts settings in force. Those that can fail come first: certificates, and then keys; if the
// keys fail, it restores the certificates.
func (a changeable) take(changed []string, now, next *config.Service) error {
	among := func(names []string) bool {
		return slices.ContainsFunc(changed, func(name string) bool { return slices.Contains(names, name) })
	}
	if among(tlsSettings) {
		if err := a.secure.Change(next.TLSFiles()); err != nil {
			return err
		}
	}
	if among(accessSettings) {
		if err := a.book.Change(next.Access.File, next.Access.Keys, next.Access.Limit); err != nil {
			if among(tlsSettings) {
				err = errors.Join(err, a.secure.Change(now.TLSFiles()))
			}
			return err
		}
		now.Access = next.Access
	}
	if among(tlsSettings) {
		now.TLSCert, now.TLSKey, now.TLSClientCA, now.TLSClientAuth = next.TLSCert, next.TLSKey, next.TLSClientCA, next.TLSClientAuth
	}
	a.service.SetCORSOrigins(next.Server.CORSOrigins)
	a.service.SetAllowedHosts(next.Hosts())
	a.level.Set(next.LogLevel)
	return nil
}

// reloadGateway returns how a gateway takes changed settings.
func reloadGateway(l *config.Sources, log *slog.Logger, level *slog.LevelVar, g *gateway.Gateway) *config.Reloading {
	next := &config.Sources{}
	into := &config.Gateway{}
	r := &config.Reloading{Sources: l, Log: log}
	r.Read = func() (*config.Sources, error) {
		next = &config.Sources{}
		into = &config.Gateway{Service: &next.Service}
		err := l.Again(next, config.GatewaySettings(into))
		return next, errors.Join(err, into.CheckTogether())
	}
	r.Take = func(_ context.Context, changed []string) error {
		if slices.Contains(changed, "routes") {
			if err := g.ReloadFrom(into.Gateway.RoutesFile); err != nil {
				return err
			}
		}
		if err := g.Routes().CheckHosts(into.Gateway.PreserveHost, into.Gateway.AllowedHosts); err != nil {
			return fmt.Errorf("allowed-hosts: %w", err)
		}
		g.SetAllowedHosts(into.Gateway.AllowedHosts)
		level.Set(into.LogLevel)
		return nil
	}
	r.Files = []config.Reloadable{{Name: "routes", Apply: func(context.Context) error { return g.Reload() }}}
	return r
}
