// Command testrun runs `go test` with its own arguments, says how far it is, and ends with a line
// of counts:
//
//	812 passed, 0 failed, 0 skipped in 3m12s
//
// Reading the events of `go test -json` and printing what failed is the work of gotestsum's package
// testjson. What stands here is what gotestsum does not do: progress as "12 of 48 packages", and a
// stricter verdict. A run fails as well if a test was skipped, since a test that cannot run proves
// nothing, if a package passed without having run one of its tests, and if no test ran at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"gotest.tools/gotestsum/testjson"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	passed := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if !passed {
		os.Exit(1)
	}
}

// run runs the tests and reports whether all of them passed.
func run(ctx context.Context, args []string, out io.Writer) bool {
	listed, err := list(ctx, args)
	if err != nil {
		fmt.Fprintf(out, "go list: %v\n", err)
		return false
	}
	p := newProgress(out, listed)
	stop := p.sayEvery(30 * time.Second)
	execution, err := test(ctx, args, p)
	stop()
	return verdict(p, execution, errors.Join(err, p.incomplete()))
}

// list returns how many of the packages that the arguments name have tests.
func list(ctx context.Context, args []string) (int, error) {
	query := []string{"list", "-e", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	for i, arg := range args {
		switch name := strings.TrimLeft(arg, "-"); {
		case name == "args":
			args = args[:i]
		case strings.HasPrefix(name, "tags=") && name != arg:
			query = append(query, arg)
		}
		if len(args) == i {
			break
		}
	}
	for _, arg := range args {
		if arg == "." || strings.HasPrefix(arg, "./") {
			query = append(query, arg)
		}
	}
	cmd := exec.CommandContext(ctx, "go", query...) //nolint:gosec // the arguments are those of who runs the tests
	text, err := cmd.Output()
	return len(strings.Fields(string(text))), err
}

// test runs `go test -json` and hands its events to the progress. A program that was built with the
// race detector sleeps for a second at its end, which GORACE shortens: tests start many of them.
func test(ctx context.Context, args []string, p *progress) (*testjson.Execution, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // as above
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stdout, errOut := cmd.StdoutPipe()
	stderr, errErr := cmd.StderrPipe()
	if err := errors.Join(errOut, errErr, cmd.Start()); err != nil {
		return nil, err
	}
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: stdout, Stderr: stderr, Handler: p, IgnoreNonJSONOutputLines: true,
	})
	return execution, errors.Join(err, cmd.Wait())
}

// verdict prints the failures and the counts, and reports whether all is well.
func verdict(p *progress, execution *testjson.Execution, err error) bool {
	out := p.out
	if execution == nil {
		fmt.Fprintf(out, "go test: %v\n", err)
		return false
	}
	var summary strings.Builder
	testjson.PrintSummary(&summary, execution, testjson.SummarizeAll)
	failures, _, _ := strings.Cut(summary.String(), "\nDONE ") // its counts lack those of ours
	fmt.Fprint(out, failures)
	failed, skipped, passed := len(execution.Failed()), len(execution.Skipped()), 0
	for _, name := range execution.Packages() {
		passed += len(execution.Package(name).Passed)
	}
	if failed == 0 && err != nil {
		failed = 1
		fmt.Fprintf(out, "FAIL: %v\n", err)
	}
	if passed+failed+skipped == 0 {
		fmt.Fprintln(out, "FAIL: no test ran")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped in %v\n", passed, failed, skipped,
		time.Since(p.started).Round(time.Second))
	return failed == 0 && skipped == 0 && passed > 0
}
