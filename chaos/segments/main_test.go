//go:build check

package segments

import (
	"flag"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

var processes = flag.Int("processes", 4, "processes that draw ids at once, each with four clients")

const (
	tags    = 3                // that they draw from
	clients = 4                // of each process
	rest    = time.Millisecond // between two draws of a client
	// that a range is to last: there is always a fetch to be killed in.
	period = 200 * time.Millisecond
	step   = 50 // of the sources
)

func TestMain(m *testing.M) { chaostest.Main(m, play) }
