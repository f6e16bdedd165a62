package locks

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

// How much is broken, and how. The defaults are for a run beside other tests.
var (
	rounds    = flag.Int("rounds", 1, "rounds of every kind of fault")
	processes = flag.Int("processes", 4, "processes that take locks at once, each with four clients")
	ack       = flag.Int("ack", 0, "replicas, of two, that have to confirm every write; 0 = 1, and 2 where a master is replaced while it serves")
	faults    = flag.String("faults", "", "a regular expression: only these kinds of fault")
	seed      = flag.Uint64("seed", 0, "what is drawn by lot; 0 = another one each time")
	trials    = flag.Int("trials", 10, "links that are cut under a holder")
	names     = flag.Int("names", 20_000, "names that are locked once")
)

const (
	ttl     = time.Second            // of every lease
	window  = 300 * time.Millisecond // in which a waiter claims what it was handed
	clients = 4                      // of each process
)

// roleVariable names the role that a process of this test binary plays instead of running tests.
const roleVariable = "COATCHECK_CHAOS_LOCKS"

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
