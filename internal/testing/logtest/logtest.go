// Package logtest keeps the output of a log or a process, so that a test can read it meanwhile.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Text is all that was written to it. Its zero value is empty. It is safe for concurrent use.
type Text struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write never fails.
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String returns the text so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Logger writes lines of all levels to the text.
func (t *Text) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(t, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
