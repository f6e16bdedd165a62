package step_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Points stand in the hottest code that there is. The compiler puts At into its callers, where
// nothing remains of it.
func TestAtIsNothing(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m=2", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "as: func(string) {  }") {
		t.Errorf("go build -gcflags=-m=2 of internal/step: got %s, want an empty function that is inlined", out)
	}
}
