//go:build unix

package cli

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// A machine sleeps right after a renewal. The window's end is told by the boot clock, which runs on
// meanwhile, so it must not move as Go's monotonic clock does, which stands still.
func TestTheTimeThatAMachineSleepsIsGoneFromTheWindow(t *testing.T) {
	const slept = 20 * time.Second
	begin := time.Now()
	lease := snowflake.Lease{Time: begin, At: expect.Asleep(begin, slept), NotAfter: begin.Add(30 * time.Second)}
	if awake := time.Since(lease.At); awake >= slept {
		t.Fatalf("the monotonic clock has gone on for %v, want it to have stood still", awake)
	}
	expect.Equal(t, "wall time that has passed", time.Now().Round(0).Sub(lease.At.Round(0)) >= slept, true)
	if left := remaining(lease); left > 30*time.Second-slept {
		t.Errorf("after %v asleep %v of a window of 30s remain, want 10s at most", slept, left)
	}
}
