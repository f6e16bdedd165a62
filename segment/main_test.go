package segment

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// atEnd ends what tests share, after the last of them.
var atEnd []func()

// AtEnd has something ended after the last test, and before the check for goroutines that are left.
func AtEnd(end func()) { atEnd = append(atEnd, end) }

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}
