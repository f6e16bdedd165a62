//go:build check

package openapi_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// Redocly's linter has no fault to name, by the rules in testdata/redocly.
func TestRedoclyFindsNoFault(t *testing.T) {
	folder := proctest.Packages(t, filepath.Join("testdata", "redocly"))
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "node_modules", ".bin", "redocly"),
		"lint", "--config", filepath.Join(folder, "redocly.yaml"), "openapi.yaml")
	command.Env = append(command.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("redocly lint: %v\n%s", err, output)
	}
}
