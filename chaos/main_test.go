package chaos

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

// How much is broken, and how. The defaults are for a run beside other tests; README.md has those of a long one.
var (
	rounds  = flag.Int("rounds", 1, "rounds of every kind of fault")
	clients = flag.Int("clients", 20, "operations under way at once in a round; half of them are asked for twice")
	ack     = flag.Int("ack", 1, "replicas that must confirm a write, of two; with 0 the promises do not hold, and the tests are to fail")
	faults  = flag.String("faults", "", "a regular expression: only these kinds of fault")
	goOn    = flag.Bool("go-on", false, "go on after a violation, to count them")
	seed    = flag.Uint64("seed", 0, "what is drawn by lot; 0 = another one each time")
)

const (
	lease        = 1500 * time.Millisecond // of every attempt
	storeTimeout = 2 * time.Second         // longer than a failover mostly takes, so that what was sent to a stopped master is still waited for when it goes on
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		redisstore.LogTo(slog.New(slog.DiscardHandler))
		fmt.Fprintln(os.Stderr, play(role))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
