package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// runs returns the arguments of each `go test` that tests what args say, all at once. packages are
// the import paths that args name, chosen are the tests to run, and binaries is where test binaries
// stay from run to run.
func runs(args, packages []string, chosen selection, binaries string) [][]string {
	args, rest := cutArgs(args)
	flags := slices.DeleteFunc(slices.Clone(args), isPackage)
	to := kept(flags, binaries)
	if chosen.flag != "" {
		flags = append(flags, chosen.flag)
	}
	var all [][]string
	for _, group := range distinct(packages) {
		all = append(all, slices.Concat(to, flags, group, rest))
	}
	return all
}

// cutArgs cuts what goes to the tests, -args and all that follows, from the arguments of `go test`.
func cutArgs(args []string) (before, rest []string) {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.TrimLeft(arg, "-") == "args" })
	if at < 0 {
		return args, nil
	}
	return args[:at], args[at:]
}

func isRace(arg string) bool { return arg == "-race" }

func isTags(arg string) bool { return strings.HasPrefix(arg, "-tags=") }

// kept returns the flags that have `go test` keep its test binaries, and not link one that is up to
// date. Linking all of them takes minutes of processor time. They are linked as they would be if
// they were not kept, without the tables that only a debugger reads. There is a directory for each
// way to build them, so that two ways by turns do not link them anew.
func kept(flags []string, binaries string) []string {
	var way []string
	for _, flag := range flags {
		if isRace(flag) || isTags(flag) {
			way = append(way, strings.ReplaceAll(strings.TrimLeft(flag, "-"), "=", "-"))
		}
	}
	if way == nil {
		way = []string{"plain"}
	}
	return []string{"-ldflags=-s -w", "-o", filepath.Join(binaries, strings.Join(way, ",")) + string(filepath.Separator)}
}

// distinct sorts packages into groups in which the test binary of each has another name, since
// those of one `go test` lie in one directory.
func distinct(packages []string) (groups [][]string) {
next:
	for _, name := range packages {
		same := func(other string) bool { return path.Base(other) == path.Base(name) }
		for i, group := range groups {
			if !slices.ContainsFunc(group, same) {
				groups[i] = append(group, name)
				continue next
			}
		}
		groups = append(groups, []string{name})
	}
	return groups
}

// uninstrumented are packages that the race detector does not look into: an interpreter, matchers
// and a compressor, which take much of the tests' processor time with it. One goroutine at a time
// works with each of their values, and they share none with our code. What calls them is looked at.
//
// A package that uses sync.Map, atomic.Pointer or another generic function of ours must not stand
// here. The linker keeps one copy of an instantiation: if that copy has no race detector, races are
// reported that are none.
var uninstrumented = []string{
	"compress/flate",
	"github.com/santhosh-tekuri/jsonschema/...",
	"github.com/yuin/gopher-lua/...",
	"regexp/...",
}

// uninlined is compiled without inlining, which halves the time: it takes longest of all packages,
// and nearly all others wait for it. The race detector sees the same accesses.
const uninlined = "github.com/redis/go-redis/v9"

// raceFlags returns the flags that `go test` gets besides args if they turn the race detector on.
func raceFlags(args []string) []string {
	var flags []string
	if slices.ContainsFunc(args, isRace) {
		for _, name := range uninstrumented {
			flags = append(flags, "-gcflags="+name+"=-race=false -dwarf=false")
		}
		flags = append(flags, "-gcflags="+uninlined+"=-l -dwarf=false")
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
func test(ctx context.Context, runs [][]string, p *progress, costs *ledger) (*testjson.Execution, error) {
	through, err := costs.flags()
	if err != nil {
		return nil, err
	}
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	var all sync.WaitGroup
	faults := make([]error, len(runs))
	var mu sync.Mutex // of both pipes: a line goes through whole
	for i, args := range runs {
		all.Go(func() {
			events, said := &wholeLines{to: out, mu: &mu}, &wholeLines{to: errs, mu: &mu}
			faults[i] = errors.Join(goTest(ctx, slices.Concat(through, args), events, said, costs), events.end(), said.end())
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

// environment is what tests find. A program that was built with the race detector sleeps for a
// second at its end, which GORACE shortens: tests start many of them.
func environment() []string {
	return append(os.Environ(), "GORACE=atexit_sleep_ms=20 "+os.Getenv("GORACE"))
}

// goTest runs one `go test -json`.
func goTest(ctx context.Context, args []string, stdout, stderr io.Writer, costs *ledger) error {
	all := slices.Concat([]string{"test", "-json"}, raceFlags(args), args)
	cmd := exec.CommandContext(ctx, "go", all...) //nolint:gosec // as above
	cmd.Env = environment()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	costs.ended(cmd.ProcessState)
	return err
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
