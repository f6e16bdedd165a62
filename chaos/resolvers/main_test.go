//go:build check && linux

package resolvers

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// How much is asked for. The defaults are for a run beside other tests.
var (
	keys       = flag.Int("keys", shortKeys, "keys that clients ask for")
	duplicates = flag.Int("duplicates", 8, "clients for each key")
)

const (
	shortKeys = 40
	// limit is how long the gateway waits for the service, and pause how long a process is stopped.
	limit = 2 * time.Second
	pause = limit + limit/2
	lease = 3 * time.Second
	// patience is how long a client asks until it gives up, and a minute how long a doubt may stay.
	patience = 3 * time.Minute
	// storeTimeout is longer than a failover mostly takes.
	storeTimeout = 2 * time.Second
	// downAfter is for how long a master is silent that is held for dead.
	downAfter = 1500 * time.Millisecond
)

// beside lets a test run beside others in a run beside other tests; at length each has the machine
// to itself, unless what is counted is written down.
func beside(t *testing.T) {
	t.Helper()
	if *keys <= shortKeys || chaostest.Proving() {
		t.Parallel()
	}
}

// Roles that this test binary plays.
const (
	primaryRole  = "primary"  // starts workers
	workerRole   = "worker"   // is a service on a socket that it inherits
	consumerRole = "consumer" // does what a table of jobs names
)

func play(role string) error {
	switch role {
	case primaryRole:
		return runPrimary()
	case workerRole:
		return runWorker()
	case consumerRole:
		return runConsumer()
	}
	return fmt.Errorf("there is no role %q", role)
}

func TestMain(m *testing.M) { chaostest.Main(m, play) }
