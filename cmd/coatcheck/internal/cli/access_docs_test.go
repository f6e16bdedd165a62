//go:build check

package cli

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const accessPage = "../../../../docs/access.md"

// varyingKey is what no two keys have in common, and what the page's certificate and clock give.
var varyingKey = regexp.MustCompile(`cck_[a-z0-9]+_[A-Za-z0-9_-]{43}|\b[0-9a-f]{64}\b|\b[a-z2-7]{8}\b|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`)

// TestCommandsOfTheAccessPage runs every command of docs/access.md in one shell, with a service of
// its own on a free port, and compares what it prints with the page. With -update it writes that
// into the page.
func TestCommandsOfTheAccessPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(accessPage)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(text))
	outputs := runAccessPage(t, steps)
	if *update {
		writePage(t, accessPage, string(text), steps, outputs)
		return
	}
	look := func(output string) string {
		return shape(varyingKey.ReplaceAllString(requestID.ReplaceAllString(output, "request …"), "…"))
	}
	for i, step := range steps {
		if got, want := look(outputs[i]), look(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}

func runAccessPage(t *testing.T, steps []step) []string {
	t.Helper()
	outputs := runOnPort(t, steps, "127.0.0.1:8443")
	if len(steps) < 15 {
		t.Fatalf("%d commands", len(steps))
	}
	return outputs
}

// runOnPort runs the commands of a page in one shell, with a free port for that of the page, and
// returns what each printed.
func runOnPort(t *testing.T, steps []step, pageAddress string) []string {
	t.Helper()
	address := freeAddress(t)
	script := "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\ncoatcheck() { " + asProgram + "=1 '" + built(t) + "' \"$@\"; }\n"
	for _, step := range steps {
		command := strings.ReplaceAll(step.command, pageAddress, address)
		// so that $! is the service itself and not a shell around it
		if strings.HasPrefix(command, "coatcheck serve") {
			command = "env " + asProgram + "=1 '" + built(t) + "'" + strings.TrimPrefix(command, "coatcheck")
		}
		script += command + "\necho; echo '" + marker + "'\n"
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script)
	bash.Dir = t.TempDir()
	out, err := bash.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	outputs := strings.Split(strings.ReplaceAll(string(out), address, pageAddress), "\n"+marker+"\n")
	if len(outputs) != len(steps)+1 {
		t.Fatalf("%d outputs of %d commands:\n%s", len(outputs)-1, len(steps), out)
	}
	return outputs[:len(steps)]
}

// freeAddress is an address without a listener now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
