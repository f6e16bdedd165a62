//go:build check

package outages

import (
	"flag"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

var wanted = flag.Int("cuts", 20, "faults of each kind of which there are at least as many")

func TestMain(m *testing.M) { chaostest.Main(m, nil) }
