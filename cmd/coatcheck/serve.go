package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func (p *program) serveCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "serve", Short: "Run the service", Args: noArgs,
		Long: "Run the service. Without arguments it uses the embedded store and listens on 127.0.0.1:8080.",
	}
	l := bindFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := l.complete(c, p); err != nil {
			return err
		}
		return p.serve(c.Context(), &l.config)
	}
	return command
}

// serve runs the service until the context ends.
func (p *program) serve(ctx context.Context, c *config) (err error) {
	log := p.logger(c)
	redisstore.LogTo(log)
	storeConfig := c.store()
	storeConfig.Logger = log
	store, err := redisstore.OpenConfig(ctx, storeConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen, or --listen 127.0.0.1:0 for a free port", err)
	}
	service := server.New(server.Config{
		Store: store, Logger: log, Dev: c.dev, PaymentDelay: c.paymentDelay, PaymentLease: c.paymentLease,
		Principal: idempotency.HeaderPrincipal(c.principalHeaders...), TokenKeys: c.tokenKeys, AnswerKeys: c.answerKeys,
		MaxBody: c.maxBody, RequestTimeout: c.requestTimeout, DrainDelay: c.drainDelay, StopTimeout: c.stopTimeout,
	})
	if err := p.banner(ctx, c, store, listener.Addr(), log); err != nil {
		return errors.Join(err, listener.Close())
	}
	err = service.Serve(ctx, listener)
	log.Info("stopped")
	return err
}

// logger writes to standard error, so that standard output is the banner's.
func (p *program) logger(c *config) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.logLevel}
	if c.logFormat == "json" || p.json {
		return slog.New(slog.NewJSONHandler(p.stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.stderr, options))
}
