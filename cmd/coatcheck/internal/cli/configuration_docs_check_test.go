//go:build check

package cli

import (
	"os"
	"testing"
)

// TestCommandsOfTheConfigurationPage runs every command of the page, with a service on a free port,
// and compares what it prints. With -update it writes that into the page.
func TestCommandsOfTheConfigurationPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(text))
	if len(steps) < 8 {
		t.Fatalf("%d commands", len(steps))
	}
	outputs := runOnPort(t, steps, "127.0.0.1:8080")
	if *update {
		writePage(t, configurationPage, string(text), steps, outputs)
		return
	}
	for i, step := range steps {
		if got, want := shape(outputs[i]), shape(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}
