package chaostest

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

// How much is broken, and what. The defaults are for a run beside other tests.
var (
	Rounds = flag.Int("rounds", 1, "rounds of every kind of fault")
	Faults = flag.String("faults", "", "a regular expression: only these kinds of fault")
	seed   = flag.Uint64("seed", 0, "what is drawn by lot; 0 = another one each time")
)

// Main is a package's TestMain. If the environment names a role this process plays it, and runs no
// tests.
func Main(m *testing.M, play func(role string) error) {
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	role := os.Getenv(RoleVariable)
	if role == "" {
		runMoreAtOnce()
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(program.folder) // without a program there is none
			os.Exit(code)
		}))
		return
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runMoreAtOnce has twice as many tests run at once as there are processors, unless a flag says how
// many: nearly all of them wait for a failover or a lease most of the time.
func runMoreAtOnce() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // it is a number
	}
}

// NewLot returns the lot that decides, and tells its seed.
func NewLot(t testing.TB) *rand.Rand {
	drawn := *seed
	if drawn == 0 {
		drawn = rand.Uint64()
	}
	t.Logf("-seed=%d", drawn)
	seeds.Store(t.Name(), drawn)
	return rand.New(rand.NewPCG(drawn, 0))
}

// Another returns a lot that another one has drawn.
func Another(lot *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(lot.Uint64(), 0)) }

// Wanted returns what reports whether a kind of fault is asked for.
func Wanted(t testing.TB) func(name string) bool {
	t.Helper()
	wanted, err := regexp.Compile(*Faults)
	if err != nil {
		t.Fatalf("-faults: %v", err)
	}
	return wanted.MatchString
}

// longRun is by how much longer everything is waited for in a run that takes half an hour, which is
// not to end since the machine was busy for a minute; and longest is by how much longer a wait may
// be than one in which nothing changes.
const (
	longRun = 3
	longest = 10
)

// Await waits until check returns "", and fails the test with what it says if that has been the
// same for limit: while it changes, something is done, however slowly. When the test has ended it
// gives up.
func Await(t testing.TB, limit time.Duration, check func() (complaint string)) {
	t.Helper()
	if Proving() {
		limit *= longRun
	}
	start, said := time.Now(), ""
	for since := start; ; {
		complaint := check()
		if complaint == "" {
			return
		}
		if complaint != said {
			said, since = complaint, time.Now()
		}
		if time.Since(since) > limit || time.Since(start) > longest*limit {
			t.Fatalf("not within %v: %s", time.Since(start).Round(time.Second), complaint)
		}
		select {
		case <-t.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
