package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// A condition that is there at once is seen at once, and what takes seconds, as a failover does, is
// asked for rarely: a question costs several times what the server needs for its answer, with the
// race detector.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 40 * time.Millisecond
)

// within returns a context for one wait. It ends after limit, and with the test; in a cleanup,
// where the test's own context has ended already, only the limit counts.
func within(t testing.TB, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx := t.Context()
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// must ends the test if there is an error of what was called.
func must(t testing.TB, called string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("redistest: %s: %v", called, err)
	}
}

// await calls check until it returns nil, with pauses that double. After limit, or at the end of
// the test, it returns check's last complaint.
func await(t testing.TB, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := within(t, limit)
	defer cancel()
	var complaint error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// Once the wait is over, the error is most likely that, and the one before says more.
		if complaint == nil || ctx.Err() == nil {
			complaint = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited up to %v: %w", limit, complaint)
		case <-time.After(pause):
		}
	}
}
