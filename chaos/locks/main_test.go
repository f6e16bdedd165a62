//go:build check

package locks

import (
	"flag"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
)

// How much is asked for. The defaults are for a run beside other tests.
var (
	processes = flag.Int("processes", 4, "processes that take locks at once, each with four clients")
	ack       = flag.Int("ack", 0, "replicas, of two, that have to confirm every write; 0 = 1, and 2 where a master is replaced while it serves")
	trials    = flag.Int("trials", 6, "links that are cut under a holder, and under a command")
	names     = flag.Int("names", 20_000, "names that are locked once")
)

const (
	ttl    = locking.TTL            // of every lease
	window = 300 * time.Millisecond // in which a waiter claims what it was handed
)

func TestMain(m *testing.M) { chaostest.Main(m, play) }
