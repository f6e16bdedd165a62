package cli

import (
	"os"
	"testing"
)

// built is the path of the program for tests that start it as a process of its own. It is the test
// binary, which can be the program as well (asProgram): races make such a process end with another
// code, and write to standard error. It takes four times the processor time to start, less than to
// compile and link the program as users build it, which the tests of memory and of pages do.
func built(t testing.TB) string {
	t.Helper()
	return os.Args[0]
}
