//go:build check

package counters

import (
	"flag"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

var (
	processes = flag.Int("processes", 4, "processes that count at once, each with four clients")
	outside   = flag.Bool("beyond", false, "break what the assumptions leave out; what is found is only reported")
	ack       = flag.Int("ack", 2, "replicas, of two, that have to confirm every write; with less than both, what is found is only reported")
)

const (
	counters = 6                    // that they count with at a time
	scene    = 4 * time.Second      // for which half of them are used
	clients  = 4                    // of each process
	rest     = 5 * time.Millisecond // between two calls of a client
	maxRange = 100                  // values of one call
	// calls after which a process has surely seen each of the counters.
	seen = 300
)

func TestMain(m *testing.M) { chaostest.Main(m, play) }
