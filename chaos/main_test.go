//go:build check

package chaos

import (
	"flag"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// How much is asked for. The defaults are for a run beside other tests; README.md has those of a
// long one.
var (
	clients = flag.Int("clients", 20, "operations under way at once in a round; half of them are asked for twice")
	ack     = flag.Int("ack", 1, "replicas that must confirm a write, of two; with 0 the promises do not hold, and the tests are to fail")
	// with one that is shorter than handlers take, the test of rolling restarts is to fail.
	stopTimeout = flag.Duration("stop-timeout", 0, "of the programs in rolling restarts; 0 = their default")

	goOn = flag.Bool("go-on", false, "go on after a violation, to count them")
)

const (
	lease = 1500 * time.Millisecond // of every attempt
	// longer than a failover mostly takes, so that what was sent to a stopped master is still
	// waited for when it goes on.
	storeTimeout = 2 * time.Second
	// how long a master must be silent to be held for dead. On a busy machine one that is alive is
	// silent for half a second now and then.
	downAfter = 1500 * time.Millisecond
)

func TestMain(m *testing.M) { chaostest.Main(m, play) }
