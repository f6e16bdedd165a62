//go:build check && linux

package servers

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
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
	_ = os.RemoveAll(filepath.Dir(built.path))
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// built is the program, one for all tests.
var built struct {
	once sync.Once
	path string
}

func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		folder, err := os.MkdirTemp("", "coatcheck-servers") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		built.path = filepath.Join(folder, "coatcheck")
		if err := os.Rename(chaostest.Build(t), built.path); err != nil {
			t.Fatal(err)
		}
	})
	return built.path
}
