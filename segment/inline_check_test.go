//go:build check

package segment

import (
	"os/exec"
	"strings"
	"testing"
)

// Next costs what a bare addition does only where the compiler puts it into its callers. It has
// next to no room left for that: one more read of a field, and it is a call.
func TestNextIsPutIntoItsCallers(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m", ".")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "can inline (*Tag).Next\n") {
		t.Error("(*Tag).Next is too large for the compiler to inline; see go build -gcflags=-m=2")
	}
}
