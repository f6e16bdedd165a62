//go:build check

package cli

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Each test here runs every command of a page, and compares what it prints with the page. With
// -update it writes that into the page.

const (
	pages   = "../../../../docs/"
	pageURL = "http://127.0.0.1:8080" // as the pages write it
	marker  = "--- next command ---"
)

// The commands of the README, and those of the walk, on each kind of store.
func TestWalkOfTheReadme(t *testing.T)       { testWalk(t, "../../../../README.md") }
func TestWalkThroughTheService(t *testing.T) { testWalk(t, pages+"walk.md") }

func testWalk(t *testing.T, file string) {
	t.Helper()
	for _, store := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"embedded", func(*testing.T) string { return "embedded:" }},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() }},
	} {
		t.Run(store.name, func(t *testing.T) {
			samePage(t, file, shape, atService(t, serve(t, "--dev", "--redis", store.url(t), "--store-timeout", "30s").banner.URL))
		})
	}
}

func TestDoorsPageRuns(t *testing.T) {
	p := serve(t, "--leaf", "segment,snowflake", "--segment-step", "2000", "--tinyid-tokens", "orders=0f673adf,events=5d791b64")
	samePage(t, pages+"doors.md", shape, atService(t, p.banner.URL))
}

func TestIDsPageRuns(t *testing.T) {
	samePage(t, pages+"ids.md", shape, atService(t, serve(t, "--opaque-keys", aKey("k1", 7)).banner.URL))
}

// today is a date as keys and numbers have it.
var today = regexp.MustCompile(`\b20[0-9]{6}\b`)

func TestCommandsOfTheCountersPage(t *testing.T) {
	t.Parallel()
	samePage(t, pages+"counters.md", without(today), atService(t, serve(t).banner.URL))
}

func TestCommandsOfTheLimitsPage(t *testing.T) {
	t.Parallel()
	samePage(t, limitsPage, shape, atService(t, serve(t).banner.URL))
}

// requestID is that of the service's log in an error.
var requestID = regexp.MustCompile(`request [A-Z2-7]{26}`)

// elsewhere is what a printed command repeats, and need not for the service of the page.
var elsewhere = regexp.MustCompile(` --server http://127\.0\.0\.1:\d+`)

func TestCommandsOfTheLocksPage(t *testing.T) {
	t.Parallel()
	samePage(t, locksPage, func(output string) string {
		return without(requestID)(elsewhere.ReplaceAllString(output, ""))
	}, atService(t, serve(t).banner.URL))
}

// owner is the host and process in what once prints of a command that ran before.
var owner = regexp.MustCompile(`on \S+:\d+, and`)

func TestCommandsOfTheOncePage(t *testing.T) {
	t.Parallel()
	samePage(t, pages+"once.md", without(owner), atService(t, serve(t).banner.URL))
}

// varyingKey is what no two keys have in common, and what a page's certificate and clock give.
var varyingKey = regexp.MustCompile(`cck_[a-z0-9]+_[A-Za-z0-9_-]{43}|\b[0-9a-f]{64}\b|\b[a-z2-7]{8}\b|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`)

func TestCommandsOfTheAccessPage(t *testing.T) {
	t.Parallel()
	samePage(t, pages+"access.md", without(requestID, varyingKey), onPort(t, "127.0.0.1:8443"))
}

func TestCommandsOfTheConfigurationPage(t *testing.T) {
	t.Parallel()
	samePage(t, configurationPage, shape, onPort(t, "127.0.0.1:8080"))
}

// step is a command of a page and what the page says that it prints.
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

// samePage runs the commands of a page, and compares what they print with the page, both as look
// shows them.
func samePage(t *testing.T, file string, look func(string) string, run func(steps []step) []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	expect.NoError(t, "read the page", err)
	steps := walk(string(text))
	if len(steps) < 5 {
		t.Fatalf("got %d commands of %s, want 5 at least", len(steps), file)
	}
	outputs := run(steps)
	if *update {
		writePage(t, file, string(text), steps, outputs)
		return
	}
	for i, step := range steps {
		if got, want := look(outputs[i]), look(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}

// writePage writes what the commands of a page have printed into it.
func writePage(t *testing.T, file, page string, steps []step, outputs []string) {
	t.Helper()
	next := 0
	page = console.ReplaceAllStringFunc(page, func(old string) string {
		block := "```console\n"
		for range walk(old) {
			output := strings.TrimSpace(strings.ReplaceAll(outputs[next], "\r", ""))
			block += "$ " + steps[next].command + "\n" + strings.TrimLeft(output+"\n", "\n")
			next++
		}
		return block + "```"
	})
	expect.NoError(t, "write the page", os.WriteFile(file, []byte(page), 0o600))
}

// varying is what differs from run to run: secrets, times, fences, ids.
var varying = regexp.MustCompile(`(pay_|urn:request:|"lease":")[A-Za-z0-9_-]{22}(\.[0-9]{13})?|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|[0-9]{16,}`)

func shape(output string) string {
	output = varying.ReplaceAllString(output, "$1…")
	return strings.Join(strings.Fields(output), " ")
}

// without is shape, with more that differs from run to run.
func without(parts ...*regexp.Regexp) func(string) string {
	return func(output string) string {
		for _, part := range parts {
			output = part.ReplaceAllString(output, "…")
		}
		return shape(output)
	}
}

// atService runs commands at a service, of which the pages say that it is at pageURL.
func atService(t *testing.T, url string) func([]step) []string {
	url = apitest.Proxy(t, url)
	short := strings.TrimPrefix(pageURL, "http://127.0.0.1") // localhost:8080 in the README
	in := strings.NewReplacer(pageURL, url, "localhost"+short, url)
	return func(steps []step) []string {
		t.Helper()
		return inOneShell(t, "export COATCHECK_SERVER="+url, steps, in.Replace)
	}
}

// onPort runs commands with a free port for that of the page.
func onPort(t *testing.T, pageAddress string) func([]step) []string {
	return func(steps []step) []string {
		t.Helper()
		address := freeAddress(t)
		outputs := inOneShell(t, "trap 'kill $(jobs -p) 2>/dev/null' EXIT", steps, func(command string) string {
			command = strings.ReplaceAll(command, pageAddress, address)
			// so that $! is the service itself and not a shell around it
			if strings.HasPrefix(command, "coatcheck serve") {
				command = "env " + asProgram + "=1 '" + built(t) + "'" + strings.TrimPrefix(command, "coatcheck")
			}
			return command
		})
		for i, output := range outputs {
			outputs[i] = strings.ReplaceAll(output, address, pageAddress)
		}
		return outputs
	}
}

// inOneShell runs all commands in one shell, so that variables last, after a line of its own, where
// coatcheck is the program under test. It returns what each printed.
func inOneShell(t *testing.T, first string, steps []step, in func(command string) string) []string {
	t.Helper()
	script := "exec 2>&1\n" + first + "\ncoatcheck() { " + asProgram + "=1 '" + built(t) + "' \"$@\"; }\n"
	for _, step := range steps {
		script += in(step.command) + "\necho; echo '" + marker + "'\n"
	}
	bash := exec.CommandContext(t.Context(), "bash", "-c", script)
	bash.Dir = t.TempDir()
	expect.NoError(t, "write the job of a page", os.WriteFile(bash.Dir+"/report.sh", []byte("#!/bin/sh\n"), 0o700))
	out, err := bash.Output()
	outputs := strings.Split(string(out), "\n"+marker+"\n")
	if err != nil || len(outputs) != len(steps)+1 {
		t.Fatalf("bash with the page's commands: %v, and %d outputs of %d:\n%s", err, len(outputs)-1, len(steps), out)
	}
	return outputs[:len(steps)]
}

// freeAddress is an address without a listener now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen on a free port", err)
	defer listener.Close()
	return listener.Addr().String()
}
