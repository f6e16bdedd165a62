package client_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
)

// update writes what the commands print into the page: go test ./client -run Page -update.
var update = flag.Bool("update", false, "write the commands' real output into docs/remote.md")

const (
	page   = "../docs/remote.md"
	marker = "--- next command ---"
)

var (
	console = regexp.MustCompile("(?s)```console\n(.*?)```")
	// varying is what differs from run to run: secrets, times, fences, waits.
	varying = regexp.MustCompile(`("(?:token|lease)":"|urn:request:|/token/)[A-Za-z0-9._-]{20,}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|[0-9]{16,19}|(Retry-After: )[0-9]+|(lease has )[0-9.]+s`)
)

// TestCommandsOfThePage runs every command of docs/remote.md, in one shell, and compares what it prints with the page.
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
		t.Fatalf("the page has %d commands", len(commands))
	}
	outputs := shell(t, s.url, commands)
	if *update {
		rewrite(t, text, outputs)
		return
	}
	for i, command := range commands {
		if got, want := shape(outputs[i]), shape(printed[i]); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", command, got, want)
		}
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
	examples, err := filepath.Abs("../examples")
	if err == nil {
		err = os.Symlink(examples, filepath.Join(bash.Dir, "examples"))
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := bash.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if len(outputs) != len(commands)+1 {
		t.Fatalf("%d outputs of %d commands", len(outputs)-1, len(commands))
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
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page has every code that these endpoints can answer, with its status, and says of each whether anything was done as this package does.
func TestCodesOfThePage(t *testing.T) {
	text := readPage(t)
	checkCodes(t, section(text, "## What to do on each answer\n"), told)
	checkCodes(t, section(text, "### What to do on each answer about a worker id\n"), toldOfWorkers)
	if want := client.Fingerprint("charge", "42"); !strings.Contains(text, want) {
		t.Errorf("the page's fingerprint is not %s", want)
	}
}

// section is what stands below a heading, up to the next.
func section(text, heading string) string {
	_, text, _ = strings.Cut(text, heading)
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

func checkCodes(t *testing.T, text string, codes map[wire.Code]error) {
	t.Helper()
	for code := range codes {
		_, after, found := strings.Cut(text, "`"+string(code)+"`")
		if !found {
			t.Errorf("%s is missing", code)
			continue
		}
		columns := strings.Split(after, "|")
		perhaps := errors.Is(codes[code], client.ErrUnknownOutcome)
		if done := strings.TrimSpace(columns[1]); (done == "perhaps") != perhaps || !perhaps && !strings.HasPrefix(done, "nothing") {
			t.Errorf("%s: %q", code, done)
		}
	}
	for _, match := range regexp.MustCompile("(\\d{3}) `([a-z-]+)`").FindAllStringSubmatch(text, -1) {
		if kind, known := wire.Lookup(wire.Code(match[2])); known && match[1] != strconv.Itoa(kind.Status) {
			t.Errorf("%s: status %s", match[2], match[1])
		}
	}
}

// The ids of the page are those of package snowflake.
func TestIDsOfThePage(t *testing.T) {
	var want []string
	for sequence := range int64(2) {
		id, err := snowflake.MustLayout("41/10/12").Encode(snowflake.Parts{Time: snowflake.DefaultEpoch.Add(time.Second), Worker: 5, Sequence: sequence}, snowflake.DefaultEpoch)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, id.String())
	}
	if !strings.Contains(readPage(t), "\n"+strings.Join(want, " ")+"\n") {
		t.Errorf("the page does not say %s", want)
	}
}
