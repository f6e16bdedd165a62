package fault

import (
	"strings"
	"time"
)

// WaitError is an error with a useful wait before asking again, for redisstore.RetryAfter.
type WaitError struct {
	Err  error
	Wait time.Duration
	Text string // what to add to the text of Err; {wait} stands for Wait
}

// Error adds the text.
func (w *WaitError) Error() string {
	return w.Err.Error() + strings.ReplaceAll(w.Text, "{wait}", w.Wait.Round(time.Millisecond).String())
}

// RetryAfter returns Wait.
func (w *WaitError) RetryAfter() time.Duration { return w.Wait }

// Unwrap returns Err.
func (w *WaitError) Unwrap() error { return w.Err }
