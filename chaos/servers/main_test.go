//go:build check && linux

package servers

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// roleVariable names the role that a process of this test binary plays instead of running tests.
const roleVariable = "COATCHECK_CHAOS_SERVERS"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == namedRole {
		os.Exit(serveNamed())
	}
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	code := m.Run()
	built.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// built is the program, one for all tests.
var built chaostest.Program
