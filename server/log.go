package server

import (
	"context"
	"fmt"
	"log/slog"
)

// nameless is a log without the names that clients chose.
type nameless struct{ slog.Handler }

// Handle implements slog.Handler.
func (n nameless) Handle(ctx context.Context, full slog.Record) error {
	record := slog.NewRecord(full.Time, full.Level, full.Message, full.PC)
	full.Attrs(func(a slog.Attr) bool {
		if a.Key != "tag" && a.Key != "key" && a.Key != "name" {
			record.AddAttrs(a)
		}
		return true
	})
	if err := n.Handler.Handle(ctx, record); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (n nameless) WithAttrs(attrs []slog.Attr) slog.Handler {
	return nameless{n.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (n nameless) WithGroup(name string) slog.Handler { return nameless{n.Handler.WithGroup(name)} }
