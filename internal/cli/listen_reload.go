package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/server"
)

// catchHangups keeps SIGHUP from ending the process. One that comes before onHangup waits for it.
func catchHangups() chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// onHangup has everything read again whenever the process gets SIGHUP, until it is told to stop.
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

// reloading is how a process takes what has changed: first the settings of its file, then the files
// that they name.
type reloading struct {
	layers *layers // in force
	log    *slog.Logger

	// reads and checks the settings again, but not the files that they name
	read func() (next *layers, err error)
	// whether a setting that can be taken cannot be now; nil = all can
	fixed func(name string) bool
	take  func(ctx context.Context, changed []string) error // puts those in force
	files []reloadable
}

// reloadable is a file that can be read again while the process runs. What it cannot read leaves
// what was read last in force.
type reloadable struct {
	name  string
	apply func(context.Context) error
}

// reload reads everything again. Faults are told, each on a line of its own, and leave what they
// are in as it was.
func (r *reloading) reload(ctx context.Context) {
	r.reloadSettings(ctx)
	for _, one := range r.files {
		if err := one.apply(ctx); err != nil {
			r.log.Error("not read again; what was read before stays in force", "what", one.name, "error", err)
		} else {
			r.log.Info("read again", "what", one.name)
		}
	}
}

// reloadSettings takes those settings that can change while the process runs, all of them or none,
// and says which others have.
func (r *reloading) reloadSettings(ctx context.Context) {
	next, err := r.read()
	if err != nil {
		for fault := range strings.Lines(err.Error()) {
			r.log.Error("the settings have a fault; those that were read before stay in force", "fault", strings.TrimSpace(fault))
		}
		return
	}
	var changed []string
	for i, s := range r.layers.table {
		switch {
		case s.value == next.table[i].value:
		case !s.hot || r.fixed != nil && r.fixed(s.name):
			r.log.Warn("a setting has changed that is read at the start alone: restart needed", "setting", s.name)
		default:
			changed = append(changed, s.name)
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := r.take(ctx, changed); err != nil {
		r.log.Error("new settings cannot be taken; those that were read before stay in force", "settings", strings.Join(changed, ", "), "error", err)
		return
	}
	for i, s := range r.layers.table {
		if slices.Contains(changed, s.name) {
			s.value, s.source, s.line = next.table[i].value, next.table[i].source, next.table[i].line
		}
	}
	r.log.Info("new settings are in force", "settings", strings.Join(changed, ", "))
}

// changeable is what of a running service can change.
type changeable struct {
	level   *slog.LevelVar
	book    *access.Policy
	secure  *certificates
	service *server.Server
}

// reloading of the service.
func (l *layers) reloading(log *slog.Logger, at changeable) *reloading {
	next := &layers{}
	r := &reloading{layers: l, log: log}
	r.read = func() (*layers, error) {
		next = &layers{}
		err := l.again(next, settings(&next.config))
		return next, errors.Join(err, next.config.store().Check(), next.config.checkTogether())
	}
	r.fixed = func(name string) bool { return at.fixed(name, &next.config) }
	r.take = func(ctx context.Context, changed []string) error {
		return at.take(ctx, changed, &l.config, &next.config)
	}
	if at.book != nil {
		r.files = append(r.files, reloadable{"access", at.book.Reload})
	}
	if at.secure != nil {
		r.files = append(r.files, reloadable{"certificates", at.secure.Reload})
	}
	return r
}

var (
	accessSettings = []string{"access", "access-keys", "rate", "burst"}
	tlsSettings    = []string{"tls-cert", "tls-key", "tls-client-ca", "tls-client-auth"}
)

// fixed tells of settings that turn access control, or TLS, on or off: that should not be done by a
// slip.
func (a changeable) fixed(name string, next *config) bool {
	switch {
	case slices.Contains(accessSettings, name):
		return (a.book == nil) == next.controlled()
	case slices.Contains(tlsSettings, name):
		return (a.secure == nil) == (next.tlsCert != "")
	}
	return false
}

// take puts settings in force. What can fail comes first: certificates, and then keys, of which the
// former are put back.
func (a changeable) take(ctx context.Context, changed []string, now, next *config) error {
	among := func(names []string) bool {
		return slices.ContainsFunc(changed, func(name string) bool { return slices.Contains(names, name) })
	}
	if among(tlsSettings) {
		if err := a.secure.change(next.tlsFiles()); err != nil {
			return err
		}
	}
	if among(accessSettings) {
		if err := a.book.Change(ctx, next.access, next.accessKeys, next.limit()); err != nil {
			if among(tlsSettings) {
				err = errors.Join(err, a.secure.change(now.tlsFiles()))
			}
			return err
		}
		now.access, now.accessKeys, now.rate, now.burst = next.access, next.accessKeys, next.rate, next.burst
	}
	if among(tlsSettings) {
		now.tlsCert, now.tlsKey, now.tlsClientCA, now.tlsClientAuth = next.tlsCert, next.tlsKey, next.tlsClientCA, next.tlsClientAuth
	}
	a.service.SetCORSOrigins(next.corsOrigins)
	a.service.SetAllowedHosts(next.hosts())
	a.level.Set(next.logLevel)
	return nil
}

// reloading of the gateway.
func (c *gatewayConfig) reloading(l *layers, log *slog.Logger, level *slog.LevelVar, g *gateway.Gateway) *reloading {
	next := &layers{}
	into := &gatewayConfig{}
	r := &reloading{layers: l, log: log}
	r.read = func() (*layers, error) {
		next = &layers{}
		into = &gatewayConfig{config: &next.config}
		err := l.again(next, gatewaySettings(into))
		return next, errors.Join(err, into.checkTogether())
	}
	r.take = func(_ context.Context, changed []string) error {
		if slices.Contains(changed, "routes") {
			if err := g.ReloadFrom(into.routes); err != nil {
				return err
			}
		}
		g.SetAllowedHosts(into.allowedHosts)
		level.Set(into.logLevel)
		return nil
	}
	r.files = []reloadable{{"routes", func(context.Context) error { return g.Reload() }}}
	return r
}
