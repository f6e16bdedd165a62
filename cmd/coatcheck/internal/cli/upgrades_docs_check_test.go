//go:build check

package cli

import (
	"os"
	"strings"
	"testing"
)

const upgradesPage = "../../../../docs/upgrades.md"

// TestCommandsOfTheUpgradesPage builds the program of before 1.0 and this one, as docs/upgrades.md
// says, and has both serve from one Redis: forth, back, and in the cases that must not run mixed.
// What the commands print is compared with the page. With -update it is written into the page.
func TestCommandsOfTheUpgradesPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(upgradesPage)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(text))
	machines := freeMachines(t)
	var commands []string
	for _, step := range steps {
		commands = append(commands, strings.ReplaceAll(step.command, pageMachines, machines))
	}
	outputs := runOnMachines(t, machines, ".", commands) // the page begins within the clone
	if *update {
		writePage(t, upgradesPage, string(text), steps, outputs)
		return
	}
	for i, step := range steps {
		if got, want := shape(outputs[i]), shape(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}
