//go:build check

package ids

import (
	"flag"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

var processes = flag.Int("processes", 6, "processes that stamp at once; the ring has eight worker ids")

const (
	ttl  = 1500 * time.Millisecond // of every lease
	skew = 200 * time.Millisecond  // of servers that share one clock
	ring = "41/3/12"
)

func TestMain(m *testing.M) { chaostest.Main(m, play) }
