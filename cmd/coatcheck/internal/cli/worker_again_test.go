//go:build unix

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// A command that has ended stamps no more, and no clock that it was told was later than its end. So
// the next window begins right after that, or as much later as the command may have stamped ahead.
func TestNextHolderBeginsWhereTheClockOfTheCommandWasAtItsEnd(t *testing.T) {
	t.Parallel()
	// its own clock, as docs/workers.md has it worked out
	const script = `read up rest </proc/uptime; for n in server boot; do read $n; done <$WORKER_NOT_AFTER_FILE; echo $WORKER_NOT_BEFORE_MS $server $boot $up`
	for _, row := range []struct {
		layout string
		flags  []string
		ahead  time.Duration
	}{
		{"41/10/12", []string{"--stamps-ahead", "0s"}, time.Millisecond},
		{"32/10/21@s", []string{"--stamps-ahead", "0s"}, time.Second},
		{"32/10/21@s", []string{"--stamps-ahead", "1500ms"}, 1500 * time.Millisecond},
		{"41/10/12", nil, 2 * time.Second},
	} {
		t.Run(fmt.Sprint(row.layout, row.flags), func(t *testing.T) {
			doors(t, func(t *testing.T, at []string) {
				began := time.Now()
				r := runUnderLease(t, at, append([]string{"--layout", row.layout}, row.flags...), script)
				r.exits(0)
				told := strings.Fields(r.stdout.String())
				expect.MustEqual(t, "words of the command", len(told), 4)
				ms := func(i int) int64 { n, _ := strconv.ParseInt(told[i], 10, 64); return n }
				up, _ := strconv.ParseFloat(told[3], 64)
				begin, stamped := time.UnixMilli(ms(0)), time.UnixMilli(ms(1)-ms(2)+int64(up*1000))
				next := ringOf(t, at, "orders").Slots[0].NotAfter
				if next.Before(stamped.Add(row.ahead)) {
					t.Errorf("the next window begins at %v, want %v after the command's clock, %v, at the earliest", next, row.ahead, stamped)
				}
				// the clock is ahead of the server's by no more than the grant took, which is a
				// part of the command's time
				if took := next.Sub(begin) - row.ahead; took > time.Since(began)+2*time.Millisecond {
					t.Errorf("the next window begins %v and %v after the last one, want %v at the latest, which the command took", took, row.ahead, time.Since(began))
				}
			})
		})
	}
}

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
