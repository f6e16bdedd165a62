package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// update writes what the walk prints into the README: go test -run Walk -update.
var update = flag.Bool("update", false, "write the walk's real output into the README")

// The page as it names them, and what stands for them in the test.
const (
	pageURL   = "http://127.0.0.1:8081"
	pageRedis = "redis://localhost:6379"
	pageRun   = "go run . "
)

// TestWalkOfTheReadme runs the README from top to bottom, on one ledger and one Redis: it starts
// the service as the page says, runs each command, and compares what it prints with the page.
func TestWalkOfTheReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	expect.NoError(t, "the README is read", err)
	redis, file := redistest.Start(t), newFile(t)
	var running *process
	commands := 0
	var printed, shown strings.Builder
	walked := block.ReplaceAllStringFunc(string(page), func(text string) string {
		kind, body := block.FindStringSubmatch(text)[1], block.FindStringSubmatch(text)[2]
		if kind == "sh" {
			if running != nil {
				running.stop() // it may have died on its own, as it was to
			}
			args := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(body, pageRun), pageRedis, redis.URL()))
			running = start(t, "payments", "", append(args, "--db", file, "--listen", "127.0.0.1:0")...)
			return text
		}
		shown.WriteString(body)
		fresh := ""
		for line := range strings.Lines(body) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands++
				fresh += line + runCommand(t, redis, strings.ReplaceAll(command, pageURL, running.url))
			}
		}
		printed.WriteString(fresh)
		return "```console\n" + fresh + "```"
	})
	if commands < 15 {
		t.Errorf("the page has %d commands: does this test still read it?", commands)
	}
	if *update {
		expect.NoError(t, "the README is written", os.WriteFile("README.md", []byte(walked), 0o644))
		return
	}
	if got, want := shape(printed.String()), shape(shown.String()); got != want {
		t.Errorf("the walk printed\n%s\nand the page says\n%s", got, want)
	}
}

var block = regexp.MustCompile("(?s)```(sh|console)\n(.*?)```")

// runCommand returns what a command printed, ending with a line feed if it printed anything. What
// redis-cli is to do is done here: it need not be installed.
func runCommand(t *testing.T, redis *redistest.Server, command string) string {
	t.Helper()
	if strings.TrimSpace(command) == "redis-cli -u "+pageRedis+" FLUSHALL" {
		flush(t, redis)
		return "OK\n"
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	text := strings.TrimSpace(strings.ReplaceAll(string(out), "\r", ""))
	if text == "" {
		return ""
	}
	return text + "\n"
}

var (
	ids     = regexp.MustCompile(`(pay|move)_[A-Z2-7]{26}`)
	varying = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|"fence":[0-9]{16}|"operation":"[A-Za-z0-9_-]{32}"`)
)

// shape replaces what differs from run to run. An id becomes the number in which it came, so that
// those that are to be the same are.
func shape(output string) string {
	seen := map[string]string{}
	output = ids.ReplaceAllStringFunc(output, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("id-%d", len(seen)+1)
		}
		return seen[id]
	})
	return varying.ReplaceAllString(output, "…")
}
