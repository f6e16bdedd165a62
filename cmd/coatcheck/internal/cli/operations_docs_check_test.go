//go:build check

package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// TestCommandsOfTheOperationsPage does what docs/operations.md says, from certificates to a
// restore: three Redis servers with TLS and three sentinels, and a service with keys on them. What
// the commands print is compared with the page. With -update it is written into the page.
func TestCommandsOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	look := func(output string) string {
		return without(requestID, varyingKey)(measured.ReplaceAllString(output, ""))
	}
	samePage(t, operationsPage, look, func(steps []step) []string {
		return runOperationsPage(t, readRoot(t, "docs/operations.md"), steps)
	})
}

// measured are doctor's findings about how fast and how exact the machine of the moment is.
var measured = regexp.MustCompile(`(?m)^(WARNING|note) +(latency|clock-\w+|huge-pages|replica-lag) .*\n?`)

// pageFile is a file that the page says to write: its name stands in its first line.
var pageFile = regexp.MustCompile("(?s)```(?:conf|yaml)\n# ([a-z.]+)\n.*?```")

// runOperationsPage runs all commands in an empty folder, and returns what each printed.
func runOperationsPage(t *testing.T, page string, steps []step) []string {
	t.Helper()
	machines, folder := freeMachines(t), t.TempDir()
	for _, file := range pageFile.FindAllStringSubmatch(page, -1) {
		_, content, _ := strings.Cut(strings.TrimSuffix(file[0], "```"), "\n")
		if err := os.WriteFile(filepath.Join(folder, file[1]), []byte(strings.ReplaceAll(content, pageMachines, machines)), 0o600); err != nil {
			t.Fatalf("write the file: %v", err)
		}
	}
	var commands []string
	for _, step := range steps {
		command := strings.ReplaceAll(step.command, pageMachines, machines)
		if strings.Contains(command, "ckquorum") {
			// once they all know each other, they look more often than every ten seconds
			command = "for n in 1 2 3; do redis " + machines + "$n -p 26379 sentinel debug publish-period 200 info-period 1000 ping-period 300 > /dev/null; done\n" + command
		}
		commands = append(commands, command)
	}
	if len(steps) < 50 {
		t.Errorf("%d commands: does this test still read them?", len(steps))
	}
	return runOnMachines(t, machines, folder, commands)
}

// pageMachines and a digit is what pages call their machines: loopback addresses, others in each
// run.
const pageMachines = "127.0.0.1"

// runOnMachines runs commands in one shell, and returns what each printed, with the page's names of
// the machines.
func runOnMachines(t *testing.T, machines, folder string, commands []string) []string {
	t.Helper()
	script := "exec 2>&1\ntrap 'kill -KILL 0' TERM\n" // if this test dies
	for _, command := range commands {
		script += command + "\necho; echo '" + marker + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // half a minute, and builds
	defer cancel()
	var out logtest.Text
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Dir, bash.Stdout = folder, &out
	bash.Env = append(os.Environ(), "PATH="+programs(t)+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(), "COATCHECK_STORE_TIMEOUT=30s")
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // whatever it starts ends with it
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	bash.WaitDelay = 10 * time.Second
	running, err := proctest.Start(bash, syscall.SIGTERM)
	expect.NoError(t, "start the program", err)
	err = running.Err()
	// a Redis that is asked to end does not, once its folder is gone
	_ = syscall.Kill(-running.Pid(), syscall.SIGKILL)
	outputs := strings.Split(strings.ReplaceAll(out.String(), machines, pageMachines), "\n"+marker+"\n")
	if err != nil || len(outputs) != len(commands)+1 {
		t.Fatalf("%v: %d outputs of %d commands; the last ones:\n%s", err, len(outputs)-1, len(commands), strings.Join(outputs[max(0, len(outputs)-4):], "\n"))
	}
	return outputs[:len(commands)]
}

// freeMachines begins three loopback addresses on which the ports of the page are free: 127.9.8.1
// stands for 127.9.8.11, .12 and .13.
func freeMachines(t *testing.T) string {
	t.Helper()
	for range 100 {
		machines := fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(254), rand.IntN(256))
		if free(machines) {
			return machines
		}
	}
	t.Fatal("no loopback addresses are free; this test needs Linux, where all of 127.0.0.0/8 is")
	return ""
}

func free(machines string) bool {
	for machine := 1; machine <= 3; machine++ {
		for _, port := range []string{"6379", "26379", "3000", "8080", "8081", "8082", "8083", "8084", "8443", "7001", "7002", "7011", "7012", "7013", "17011", "17012", "17013"} {
			listener, err := net.Listen("tcp", machines+strconv.Itoa(machine)+":"+port)
			if err != nil {
				return false
			}
			_ = listener.Close()
		}
	}
	return true
}

// programs is a folder with what the page calls coatcheck and redis-server: this program, and the
// server that the tests use.
func programs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	server := os.Getenv("REDIS_SERVER")
	if server == "" {
		server = "redis-server"
	}
	server, err := exec.LookPath(server)
	if err != nil {
		t.Fatalf("%v; make deps installs it", err)
	}
	for name, line := range map[string]string{
		"coatcheck":    "exec env " + asProgram + "=1 '" + built(t) + "' \"$@\"",
		"redis-server": "exec '" + server + "' \"$@\"",
	} {
		expect.NoError(t, "write the file", os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+line+"\n"), 0o700))
	}
	return folder
}
