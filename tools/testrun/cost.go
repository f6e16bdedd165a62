package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// timedFlag, as the first argument, has this program run a test binary and note its cost:
//
//	testrun -timed FILE BINARY ARGUMENTS
const timedFlag = "-timed"

// dearest is how many packages the table of costs names.
const dearest = 10

// cost is the processor time of a process and of its children that it has waited for. Servers that
// all tests of a package share outlive it, and are not part of it.
type cost struct {
	name         string
	user, system time.Duration
}

func (c cost) plus(other cost) cost {
	return cost{c.name, c.user + other.user, c.system + other.system}
}

func (c cost) minus(other cost) cost {
	return cost{c.name, c.user - other.user, c.system - other.system}
}

func (c cost) String() string {
	return fmt.Sprintf("%7.1f + %5.1f  %s", c.user.Seconds(), c.system.Seconds(), c.name)
}

// ledger is what one run costs. `go test` starts each test binary through this program, which
// writes a line to a file for it. Without a file nothing is noted.
type ledger struct {
	file string

	mu    sync.Mutex
	whole cost // of each `go test`, and all that it started
}

// newLedger returns a ledger, which notes nothing where `go test` may answer from its cache of
// results: it keeps no results of tests that it starts through another program.
func newLedger(args []string) (*ledger, error) {
	args, _ = cutArgs(args)
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-count=") }) {
		return &ledger{}, nil
	}
	file, err := os.CreateTemp("", "testrun")
	if err != nil {
		return nil, err
	}
	return &ledger{file: file.Name()}, file.Close()
}

func (l *ledger) remove() {
	if l.file != "" {
		_ = os.Remove(l.file)
	}
}

// flags returns the flags of `go test` that have it start test binaries through this program.
func (l *ledger) flags() ([]string, error) {
	if l.file == "" {
		return nil, nil
	}
	program, err := os.Executable()
	return []string{fmt.Sprintf("-exec='%s' %s '%s'", program, timedFlag, l.file)}, err
}

// ended takes note of a `go test`.
func (l *ledger) ended(state *os.ProcessState) {
	if state == nil { // it did not start
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = l.whole.plus(cost{user: state.UserTime(), system: state.SystemTime()})
}

// print prints the dearest packages, if there is more than one, and what else took time.
func (l *ledger) print(out io.Writer) error {
	if l.file == "" {
		return nil
	}
	packages, err := l.packages()
	if err != nil || len(packages) < 2 {
		return err
	}
	slices.SortFunc(packages, func(a, b cost) int { return cmp.Compare(b.user+b.system, a.user+a.system) })
	build, others := l.whole, cost{name: fmt.Sprintf("%d other packages", max(0, len(packages)-dearest))}
	build.name = "compiling and linking"
	fmt.Fprintln(out, "processor seconds, user + system:")
	for i, each := range packages {
		build = build.minus(each)
		if i < dearest {
			fmt.Fprintln(out, each)
		} else {
			others = others.plus(each)
		}
	}
	l.whole.name = "in all"
	for _, sum := range []cost{others, build, l.whole} {
		fmt.Fprintln(out, sum)
	}
	return nil
}

// packages returns the cost of each package, named by its directory.
func (l *ledger) packages() ([]cost, error) {
	file, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []cost
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var each cost
		if _, err := fmt.Sscanf(lines.Text(), "%d %d %q", &each.user, &each.system, &each.name); err != nil {
			return nil, fmt.Errorf("a line of costs %q: %w", lines.Text(), err)
		}
		if name, err := filepath.Rel(root, each.name); err == nil {
			each.name = name
		}
		all = append(all, each)
	}
	return all, lines.Err()
}

// timed runs a test binary, hands it the signals that `go test` sends, appends its cost to a file,
// and returns its exit status.
func timed(file string, command []string) int {
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...) //nolint:gosec // go test says what
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig) // it may have ended
		}
	}()
	err := cmd.Wait()
	if err := note(file, cmd.ProcessState); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		fmt.Fprintln(os.Stderr, err) // such as a signal, which nothing else shows
	}
	if err != nil {
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// note appends a line in one write, since other packages end at the same time.
func note(name string, state *os.ProcessState) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // newLedger has made it
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%d %d %q\n", state.UserTime(), state.SystemTime(), dir)
	return errors.Join(err, file.Close())
}
