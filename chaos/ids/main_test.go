package ids

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
	processes = flag.Int("processes", 6, "processes that stamp at once; the ring has eight worker ids")
	faults    = flag.String("faults", "", "a regular expression: only these kinds of fault")
	seed      = flag.Uint64("seed", 0, "what is drawn by lot; 0 = another one each time")
)

const (
	ttl  = 1500 * time.Millisecond // of every lease
	skew = 200 * time.Millisecond  // of servers that share one clock
	ring = "41/3/12"
)

// roleVariable names the role that a process of this test binary plays instead of running tests.
const roleVariable = "COATCHECK_CHAOS_IDS"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		redisstore.LogTo(slog.New(slog.DiscardHandler))
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
