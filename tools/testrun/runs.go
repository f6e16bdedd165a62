package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// plainFlag names packages whose tests run without the race detector, although the others run with
// it: -plain=./scripts,./number. It costs such packages three times their processor time, and has
// nothing to find where one goroutine does all.
const plainFlag = "-plain="

// runs returns the arguments of each `go test` that tests what args say, all at once. packages are
// the import paths that args name.
func runs(ctx context.Context, args, packages []string) ([][]string, error) {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, plainFlag) })
	if at < 0 {
		return [][]string{args}, nil
	}
	plain, err := goList(ctx, append([]string{"-e"}, strings.Split(args[at][len(plainFlag):], ",")...)...)
	if err != nil {
		return nil, err
	}
	var flags, others, found []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, plainFlag) && !isPackage(arg) {
			flags = append(flags, arg)
		}
	}
	for _, name := range packages {
		if slices.Contains(plain, name) {
			found = append(found, name)
		} else {
			others = append(others, name)
		}
	}
	var all [][]string
	if len(others) > 0 {
		all = append(all, slices.Concat(flags, others))
	}
	if len(found) > 0 {
		all = append(all, slices.Concat(slices.DeleteFunc(flags, func(arg string) bool { return arg == "-race" }), found))
	}
	return all, nil
}

// uninstrumented are packages that the race detector does not look into: an interpreter, matchers
// and a compressor, which take much of the tests' processor time with it. One goroutine at a time
// works with each of their values, and they share none with our code. What calls them is looked at.
var uninstrumented = []string{
	"compress/flate",
	"github.com/santhosh-tekuri/jsonschema/...",
	"github.com/yuin/gopher-lua/...",
	"regexp/...",
}

// raceFlags returns what `go test` is told besides args if they turn the race detector on.
func raceFlags(args []string) []string {
	var flags []string
	if slices.Contains(args, "-race") {
		for _, name := range uninstrumented {
			flags = append(flags, "-gcflags="+name+"=-race=false")
		}
	}
	return flags
}

// isPackage reports whether an argument of `go test` names packages.
func isPackage(arg string) bool { return arg == "." || strings.HasPrefix(arg, "./") }

// goList returns what `go list` prints, line by line, each line once.
func goList(ctx context.Context, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...) //nolint:gosec // the arguments are those of who runs the tests
	text, err := cmd.Output()
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines, err
}

// test runs each `go test -json` and hands the events of all to the progress.
func test(ctx context.Context, runs [][]string, p *progress) (*testjson.Execution, error) {
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	var all sync.WaitGroup
	faults := make([]error, len(runs))
	var mu sync.Mutex // of both pipes: a line goes through whole
	for i, args := range runs {
		all.Go(func() {
			events, said := &wholeLines{to: out, mu: &mu}, &wholeLines{to: errs, mu: &mu}
			faults[i] = errors.Join(goTest(ctx, args, events, said), events.end(), said.end())
		})
	}
	go func() {
		all.Wait()
		_, _ = out.Close(), errs.Close() // they never fail
	}()
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: stdout, Stderr: stderr, Handler: p, IgnoreNonJSONOutputLines: true,
	})
	// What is not read any more must not keep a command from its end.
	_, _ = stdout.Close(), stderr.Close()
	all.Wait()
	return execution, errors.Join(err, errors.Join(faults...))
}

// goTest runs one `go test -json`. A program that was built with the race detector sleeps for a
// second at its end, which GORACE shortens: tests start many of them.
func goTest(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	all := slices.Concat([]string{"test", "-json"}, raceFlags(args), args)
	cmd := exec.CommandContext(ctx, "go", all...) //nolint:gosec // as above
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd.Run()
}

// wholeLines passes on whole lines, so that those of several commands do not mix.
type wholeLines struct {
	to   io.Writer
	mu   *sync.Mutex
	rest []byte
}

func (w *wholeLines) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if end == 0 {
		return len(text), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.to.Write(w.rest[:end])
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return len(text), err
}

// end passes on what came after the last line.
func (w *wholeLines) end() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte{'\n'})
	return err
}
