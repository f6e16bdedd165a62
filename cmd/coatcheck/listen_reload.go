package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/coatcheck/coatcheck/access"
)

// reloadable is something that can be read again while the service runs. What it can not read leaves what was read last in force.
type reloadable struct {
	name  string
	apply func(context.Context) error
}

// onHangup reads everything again whenever the process gets SIGHUP, until it is told to stop.
func onHangup(ctx context.Context, log *slog.Logger, all ...reloadable) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var reader sync.WaitGroup
	reader.Go(func() {
		for range hangups {
			for _, one := range all {
				if err := one.apply(ctx); err != nil {
					log.Error("not read again; what was read before stays in force", "what", one.name, "error", err)
				} else {
					log.Info("read again", "what", one.name)
				}
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		reader.Wait()
	}
}

// reloadables are those parts of a service that can be read again.
func reloadables(book *access.Book, secure *certificates) (all []reloadable) {
	if book != nil {
		all = append(all, reloadable{"access", book.Reload})
	}
	if secure != nil {
		all = append(all, reloadable{"certificates", secure.Reload})
	}
	return all
}
