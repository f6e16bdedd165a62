//go:build check

package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const (
	pageURL = "http://127.0.0.1:8080" // as the walk writes it
	marker  = "--- next command ---"
)

// The commands of the README, and those of the walk, run with bash and curl on each kind of store,
// and what they print is compared with the page.
func TestWalkOfTheReadme(t *testing.T)       { testWalk(t, "../../../../README.md") }
func TestWalkThroughTheService(t *testing.T) { testWalk(t, "../../../../docs/walk.md") }

func testWalk(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, store := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"embedded", func(*testing.T) string { return "embedded:" }},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() }},
	} {
		t.Run(store.name, func(t *testing.T) {
			server := serve(t, "--dev", "--redis", store.url(t))
			steps := walk(page)
			outputs := runWalk(t, server.banner.URL, steps)
			if *update && store.name == "embedded" {
				rewrite(t, file, page, steps, outputs)
				return
			}
			for i, step := range steps {
				if got, want := shape(outputs[i]), shape(step.output); got != want {
					t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
				}
			}
		})
	}
}

// step is a command of the walk and what the page says that it prints.
type step struct{ command, output string }

var console = regexp.MustCompile("(?s)```console\n(.*?)```")

func walk(page string) (steps []step) {
	for _, block := range console.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSpace(command)})
				continue
			}
			steps[len(steps)-1].output += line
		}
	}
	return steps
}

// runWalk runs all commands in one shell, so that variables last, and returns what each printed.
func runWalk(t *testing.T, url string, steps []step) []string {
	t.Helper()
	if len(steps) < 7 {
		t.Fatalf("the page has %d steps", len(steps))
	}
	url = apitest.Proxy(t, url)
	script := "exec 2>&1\nexport COATCHECK_SERVER=" + url + "\ncoatcheck() { " + asProgram + "=1 '" + built(t) + "' \"$@\"; }\n"
	short := strings.TrimPrefix(pageURL, "http://127.0.0.1") // localhost:8080 in the README
	for _, step := range steps {
		command := strings.NewReplacer(pageURL, url, "localhost"+short, url).Replace(step.command)
		script += command + "\necho; echo '" + marker + "'\n"
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if len(outputs) != len(steps)+1 {
		t.Fatalf("%d outputs of %d commands", len(outputs)-1, len(steps))
	}
	return outputs[:len(steps)]
}

// varying is what differs from run to run: secrets, times, fences, ids.
var varying = regexp.MustCompile(`(pay_|urn:request:|"lease":")[A-Za-z0-9_-]{22}(\.[0-9]{13})?|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|[0-9]{16,}`)

func shape(output string) string {
	output = varying.ReplaceAllString(output, "$1…")
	return strings.Join(strings.Fields(output), " ")
}

func rewrite(t *testing.T, file, page string, steps []step, outputs []string) {
	t.Helper()
	next := 0
	page = console.ReplaceAllStringFunc(page, func(old string) string {
		block := "```console\n"
		for range walk(old) {
			block += "$ " + steps[next].command + "\n"
			if text := strings.TrimSpace(strings.ReplaceAll(outputs[next], "\r", "")); text != "" {
				block += text + "\n"
			}
			next++
		}
		return block + "```"
	})
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}
