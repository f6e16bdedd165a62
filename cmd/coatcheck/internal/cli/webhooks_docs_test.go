//go:build check

package cli

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const webhooksPage = "../../../../docs/webhooks.md"

// codeBlock matches a block of the page that is a file: its language and its text.
var codeBlock = regexp.MustCompile("(?s)```(yaml|python)\n(.*?)```")

// TestCommandsOfTheWebhooksPage runs docs/webhooks.md as it stands, on free ports and a Redis of
// its own: the routes of four senders, the receiver, repeats of each delivery, and a gateway that
// is killed midway. With -update it writes what the commands print into the page.
func TestCommandsOfTheWebhooksPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(webhooksPage)
	expect.NoError(t, "read the page", err)
	page, here := string(text), map[string]string{
		"127.0.0.1:3000": freeAddress(t), "127.0.0.1:8081": freeAddress(t), "127.0.0.1:8082": freeAddress(t),
		"redis://localhost:6379": redistest.Start(t).URL(),
	}
	here[`("127.0.0.1", 3000)`] = `("127.0.0.1", ` + strings.TrimPrefix(here["127.0.0.1:3000"], "127.0.0.1:") + `)`
	var pairs []string
	for from, to := range here {
		pairs = append(pairs, from, to)
	}
	in := strings.NewReplacer(pairs...)
	// what is killed is in doubt soon
	folder, short := t.TempDir(), strings.NewReplacer("    frees: [4xx]\n", "    frees: [4xx]\n    lease_ms: 1000\n")
	for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
		name := map[string]string{"yaml": "routes.yaml", "python": "receiver.py"}[block[1]]
		expect.Error(t, "writing "+name, os.WriteFile(folder+"/"+name, []byte(short.Replace(in.Replace(block[2]))), 0o600), nil)
	}
	steps := walk(page)
	// a job is killed by the number of its process, which is no shell around it
	script := "trap 'kill $(jobs -p) 2>/dev/null' EXIT\nexport " + asProgram + "=1 COATCHECK_LISTEN=" + here["127.0.0.1:8081"] + " COATCHECK_ADMIN_LISTEN=" + here["127.0.0.1:8082"] + "\n"
	for _, step := range steps {
		command := strings.ReplaceAll(in.Replace(step.command), "coatcheck gateway --up", "'"+built(t)+"' gateway --up")
		script += command + "\necho; echo '" + marker + "'\n"
	}
	script = "exec 2>/dev/null\ncoatcheck() { '" + built(t) + "' \"$@\"; }\n" + script
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Dir = folder
	out, err := bash.Output()
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if err != nil || len(outputs) != len(steps)+1 || len(steps) < 25 {
		log, _ := os.ReadFile(folder + "/gateway.log") // there may be none yet
		t.Fatalf("bash with the page's commands: %v; %d outputs of %d commands:\n%s\n%s", err, len(outputs)-1, len(steps), out, log)
	}
	if *update {
		writePage(t, webhooksPage, page, steps, outputs)
		return
	}
	for i, step := range steps {
		expect.Equal(t, "$ "+step.command, strings.Fields(outputs[i]), strings.Fields(step.output))
	}
}
