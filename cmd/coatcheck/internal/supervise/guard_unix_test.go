//go:build unix

package supervise

import (
	"os"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A lease can have been renewed several times before a busy machine lets the guard begin.
func TestCommandBeginsInAWindowThatMovedWhileItsGuardBegan(t *testing.T) {
	expect.Eventually(t, "the guard hears of the new end in time, and its command begins", func() bool {
		g, err := startGuard([]string{"true"}, os.Environ(), "", SinceBoot(), Allowance{Grace: time.Second, Margin: time.Second})
		expect.NoError(t, "starting a guard", err)
		defer g.stop()
		expect.NoError(t, "moving the window's end", g.move(SinceBoot()+time.Hour))
		first := <-g.reports
		<-g.ended
		return first.Group != 0
	})
}

// A lease that is not renewed while a busy machine lets its guard begin is lost, like one that ends
// a moment later: that is no fault of the command, and harmless to try again.
func TestLeaseThatEndsBeforeItsCommandBeginsIsLost(t *testing.T) {
	g, err := startGuard([]string{"true"}, os.Environ(), "", SinceBoot(), Allowance{Grace: time.Second, Margin: time.Second})
	expect.NoError(t, "starting a guard", err)
	defer g.stop()
	expect.Equal(t, "what the guard reports", <-g.reports, report{Cut: true, Failed: errTooLate.Error()})
	<-g.ended
}
