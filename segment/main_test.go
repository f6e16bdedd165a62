package segment

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// atEnd ends what tests share, after the last of them.
var atEnd []func()

// AtEnd has something ended after the last test, and before it is looked for goroutines that were
// left behind.
func AtEnd(end func()) { atEnd = append(atEnd, end) }

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("left behind: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}
