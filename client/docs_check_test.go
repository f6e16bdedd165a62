//go:build check

package client_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// update writes what the commands print into the page: go test -tags check ./client -run Page
// -update.
var update = flag.Bool("update", false, "write the commands' real output into docs/remote.md")

// marker ends what a command prints.
const marker = "--- next command ---"

var (
	console = regexp.MustCompile("(?s)```console\n(.*?)```")
	// varying is what differs from run to run: secrets, times, fences, waits.
	varying = regexp.MustCompile(`("(?:token|lease|operation)":"|urn:request:|/token/)[A-Za-z0-9._-]{20,}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|[0-9]{16,19}|(Retry-After: )[0-9]+|(lease has )[0-9.]+s`)
)

// TestCommandsOfThePage runs every command of docs/remote.md, in one shell, and compares what it
// prints with the page.
func TestCommandsOfThePage(t *testing.T) {
	text := readPage(t)
	s := embedded(t)
	var commands, printed []string
	for _, block := range console.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands, printed = append(commands, strings.TrimSpace(command)), append(printed, "")
				continue
			}
			printed[len(printed)-1] += line
		}
	}
	if len(commands) < 15 {
		t.Fatalf("the page has %d commands, want 15 at least", len(commands))
	}
	outputs := shell(t, s.url, commands)
	if *update {
		rewrite(t, text, outputs)
		return
	}
	for i, command := range commands {
		expect.Equal(t, "$ "+command, shape(outputs[i]), shape(printed[i]))
	}
}

// shell runs commands one after the other and returns what each printed.
func shell(t *testing.T, url string, commands []string) []string {
	t.Helper()
	script := "exec 2>&1\n"
	for _, command := range commands {
		script += strings.ReplaceAll(command, "http://127.0.0.1:8080", url) + "\necho; echo '" + marker + "'\n"
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script)
	bash.Dir, bash.Env = t.TempDir(), append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	clients, err := filepath.Abs("../clients")
	if err == nil {
		err = os.Symlink(clients, filepath.Join(bash.Dir, "clients"))
	}
	must(t, "linking the packages", err)
	out, err := bash.Output()
	if err != nil {
		t.Fatalf("running the commands of the page: %v\n%s", err, out)
	}
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if len(outputs) != len(commands)+1 {
		t.Fatalf("got %d outputs of %d commands", len(outputs)-1, len(commands))
	}
	return outputs[:len(commands)]
}

func shape(output string) string {
	return strings.Join(strings.Fields(varying.ReplaceAllString(output, "$1$2$3…")), " ")
}

func rewrite(t *testing.T, text string, outputs []string) {
	t.Helper()
	next := 0
	text = console.ReplaceAllStringFunc(text, func(old string) string {
		block := "```console\n"
		for line := range strings.Lines(console.FindStringSubmatch(old)[1]) {
			if !strings.HasPrefix(line, "$ ") {
				continue
			}
			block += line
			if printed := strings.TrimSpace(strings.ReplaceAll(outputs[next], "\r", "")); printed != "" {
				block += printed + "\n"
			}
			next++
		}
		return block + "```"
	})
	must(t, "writing the page", os.WriteFile(page, []byte(text), 0o644))
}
