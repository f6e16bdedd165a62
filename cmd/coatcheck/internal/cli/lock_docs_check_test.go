//go:build check

package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
)

// requestID is that of the service's log in an error.
var requestID = regexp.MustCompile(`request [A-Z2-7]{26}`)

// TestCommandsOfTheLocksPage runs every command of docs/locks.md in one shell, and compares what it
// prints with the page. With -update it writes that into the page.
func TestCommandsOfTheLocksPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(locksPage)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(text))
	outputs := runPage(t, apitest.Proxy(t, serve(t).banner.URL), steps)
	if *update {
		writePage(t, locksPage, string(text), steps, outputs)
		return
	}
	look := func(output string) string { return shape(requestID.ReplaceAllString(output, "request …")) }
	for i, step := range steps {
		if got, want := look(outputs[i]), look(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}

// runPage runs all commands in one shell, where coatcheck is the program under test, and returns
// what each printed.
func runPage(t *testing.T, url string, steps []step) []string {
	t.Helper()
	script := "exec 2>&1\ncoatcheck() { " + asProgram + "=1 '" + built(t) + "' \"$@\"; }\n"
	for _, step := range steps {
		script += strings.ReplaceAll(step.command, pageURL, url) + "\necho; echo '" + marker + "'\n"
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script)
	bash.Dir, bash.Env = t.TempDir(), append(os.Environ(), "COATCHECK_SERVER="+url)
	if err := os.WriteFile(bash.Dir+"/report.sh", []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := bash.Output()
	if err != nil {
		t.Fatalf("bash with the page's commands: %v\n%s", err, out)
	}
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if len(outputs) != len(steps)+1 || len(steps) < 5 {
		t.Fatalf("got %d outputs of %d commands, want as many, and 5 at least", len(outputs)-1, len(steps))
	}
	return outputs[:len(steps)]
}

// writePage writes what the commands of a page have printed into it.
func writePage(t *testing.T, file, page string, steps []step, outputs []string) {
	t.Helper()
	next := 0
	page = console.ReplaceAllStringFunc(page, func(old string) string {
		block := "```console\n"
		for range walk(old) {
			block += "$ " + steps[next].command + "\n" + strings.TrimLeft(strings.TrimSpace(outputs[next])+"\n", "\n")
			next++
		}
		return block + "```"
	})
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
}
