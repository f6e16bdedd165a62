package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// built is the path of the program for tests that start it as a process of its own: as users build
// it. The test binary can be the program as well (asProgram) and finds races, but it takes four
// times the processor time to start. So it is what tests start under make check.
func built(t testing.TB) string {
	t.Helper()
	if withRaces {
		return os.Args[0]
	}
	path, err := build()
	expect.NoError(t, "build the program", err)
	return path
}

// build returns the program that `go run` has in its cache. The first time it has to be linked, and
// what is told then is another path, where it is no more.
var build = sync.OnceValues(func() (path string, err error) {
	for range 2 {
		out, err := exec.Command("go", "run", "-exec", "echo", "../../../../cmd/coatcheck").Output()
		if err != nil {
			if exit, is := errors.AsType[*exec.ExitError](err); is {
				err = fmt.Errorf("%w\n%s", err, exit.Stderr)
			}
			return "", fmt.Errorf("building the program: %w", err)
		}
		path = strings.TrimSpace(string(out))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("go run does not keep the program: %s is gone", path)
})
