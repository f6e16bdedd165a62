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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gotest.tools/gotestsum/testjson"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == timedFlag {
		os.Exit(timed(os.Args[2], os.Args[3:]))
	}
	binaries, err := binariesOf()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	args, amount := cutFuzz(os.Args[1:])
	var passed bool
	if amount == "" {
		passed = run(ctx, args, binaries, os.Stdout)
	} else {
		passed = fuzz(ctx, args, amount, binaries, os.Stdout)
	}
	stop()
	if !passed {
		os.Exit(1)
	}
}

// binariesOf returns the directory where the test binaries of this module stay: beside this
// program.
func binariesOf() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	module, err := os.Getwd()
	return filepath.Join(filepath.Dir(program), "tests", filepath.Base(module)), err
}

// run runs the tests, with test binaries that stay in a directory, and reports whether all of them
// passed.
func run(ctx context.Context, args []string, binaries string, out io.Writer) bool {
	args, chosen, err := selected(ctx, args)
	var packages []string
	var tested int
	if err == nil {
		packages, tested, err = list(ctx, args, chosen.left)
	}
	if err != nil {
		fmt.Fprintf(out, "go list: %v\n", err)
		return false
	}
	costs, err := newLedger(args)
	if err != nil {
		fmt.Fprintf(out, "a file for the costs: %v\n", err)
		return false
	}
	defer costs.remove()
	p := newProgress(out, tested)
	stop := p.sayEvery(30 * time.Second)
	execution, err := test(ctx, runs(args, packages, chosen, binaries), p, costs)
	stop()
	err = errors.Join(err, p.incomplete(), costs.print(out))
	return verdict(p, execution, err)
}

// list returns the packages that the arguments name, without those that are left out, and how many
// of them have tests.
func list(ctx context.Context, args, left []string) (packages []string, tested int, err error) {
	query := []string{"-e", "-f", "{{.ImportPath}}{{if or .TestGoFiles .XTestGoFiles}} tested{{end}}"}
	args, _ = cutArgs(args)
	for _, arg := range args {
		if strings.HasPrefix(strings.TrimLeft(arg, "-"), "tags=") || isPackage(arg) {
			query = append(query, arg)
		}
	}
	lines, err := goList(ctx, query...)
	for _, line := range lines {
		name, has := strings.CutSuffix(line, " tested")
		if slices.Contains(left, name) {
			continue
		}
		packages = append(packages, name)
		if has {
			tested++
		}
	}
	return packages, tested, err
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
