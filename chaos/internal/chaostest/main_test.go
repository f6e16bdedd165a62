package chaostest

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that may fail without failing the real one.
type failing struct {
	*testing.T

	failure string
}

// Fatalf implements testing.TB.
func (f *failing) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A wait goes on for longer than its limit while what is complained about changes, and ends when it
// no longer does, or changes for ever.
func TestWaitGoesOnWhileSomethingChanges(t *testing.T) {
	for _, row := range []struct {
		name   string
		until  time.Duration // something changes
		enough time.Duration // … and all is well; 0 = never
		fails  time.Duration // 0 = it does not
	}{
		{"slow work", 5 * time.Minute, 5 * time.Minute, 0},
		{"nothing changes", 0, 0, time.Minute},
		{"work that stops", 5 * time.Minute, 0, 6 * time.Minute},
		{"work without end", time.Hour, 0, 10 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, inner := time.Now(), &failing{T: t}
				done := make(chan struct{})
				go func() {
					defer close(done)
					Await(inner, time.Minute, func() string {
						passed := time.Since(start)
						if row.enough > 0 && passed >= row.enough {
							return ""
						}
						return fmt.Sprint("done: ", min(passed, row.until).Truncate(30*time.Second))
					})
				}()
				<-done
				took := time.Since(start).Truncate(time.Minute)
				if (inner.failure != "") != (row.fails > 0) || row.fails > 0 && took != row.fails {
					t.Errorf("after %v: got failure %q, want one after %v (0 = none)", took, inner.failure, row.fails)
				}
			})
		})
	}
}
