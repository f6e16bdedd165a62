//go:build nightly

package cli

import (
	"regexp"
	"strings"
	"testing"
)

// downloads are what go says of modules that this machine has not had yet.
var downloads = regexp.MustCompile(`(?m)^go: downloading .*\n?`)

// The program of before 1.0 and this one serve from one Redis: forth, back, and in the cases that
// must not run mixed.
func TestCommandsOfTheUpgradesPage(t *testing.T) {
	t.Parallel()
	look := func(text string) string { return shape(downloads.ReplaceAllString(text, "")) }
	samePage(t, pages+"upgrades.md", look, func(steps []step) []string {
		machines := freeMachines(t)
		var commands []string
		for _, step := range steps {
			commands = append(commands, strings.ReplaceAll(step.command, pageMachines, machines))
		}
		return runOnMachines(t, machines, ".", commands) // the page begins within the clone
	})
}
