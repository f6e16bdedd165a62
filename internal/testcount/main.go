// Command testcount runs `go test -json` with its own arguments, prints a line for each package and what failed tests said, and ends with a line of counts:
//
//	812 passed, 0 failed, 0 skipped
//
// Subtests and the seeds of fuzz tests count like tests. The exit code is 0 if something passed, and nothing else happened. These count as failed too:
// a test that never ended; a package that does not build, fails outside of its tests, passes without having run one, or ends without a verdict. A skip
// is a defect as well: a test that can not run proves nothing.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if !ok {
		os.Exit(1)
	}
}

// run runs the tests. A program that was built with the race detector sleeps for a second at its end, which GORACE shortens here: tests start such programs by the hundred.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) bool {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	c := count{out: stdout, packages: map[string]*pkg{}}
	if err == nil {
		err = errors.Join(c.read(events), cmd.Wait())
	}
	return c.end(err)
}

// event is a line of `go test -json`, as `go doc test2json` and `go help buildjson` tell. Its names begin with capitals there, which decoding accepts.
type event struct {
	Action  string `json:"action"`
	Package string `json:"package"`
	Test    string `json:"test"`
	Output  string `json:"output"`
}

// count keeps the score of a run.
type count struct {
	score

	out      io.Writer
	packages map[string]*pkg // those that have no verdict yet
}

type score struct{ passed, failed, skipped int }

func (s score) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", s.passed, s.failed, s.skipped)
}

// pkg is a package whose tests run.
type pkg struct {
	score

	said    []string            // outside of tests
	running map[string][]string // what each test has said that has no verdict yet
}

func (c *count) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0 && errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case json.Unmarshal(line, &e) != nil || e.Action == "":
			c.show([]string{string(line)}) // not of a test
		case e.Action == "build-output":
			c.show([]string{e.Output})
		case e.Package != "" && e.Test != "":
			c.test(c.pkg(e.Package), e)
		case e.Package != "":
			c.verdict(c.pkg(e.Package), e)
		}
	}
}

func (c *count) pkg(name string) *pkg {
	if c.packages[name] == nil {
		c.packages[name] = &pkg{running: map[string][]string{}}
	}
	return c.packages[name]
}

func (c *count) test(p *pkg, e event) {
	switch e.Action {
	case "run", "output":
		p.running[e.Test] = append(p.running[e.Test], e.Output)
		return
	case "pass":
		p.passed++
	case "skip":
		p.skipped++
		c.show(p.running[e.Test])
	case "fail":
		p.failed++
		c.show(p.running[e.Test])
	default: // pause, cont, bench
		return
	}
	delete(p.running, e.Test)
}

// verdict reads what is said about a package as a whole.
func (c *count) verdict(p *pkg, e event) {
	switch e.Action {
	case "output":
		p.said = append(p.said, e.Output)
		return
	case "pass":
		if p.score == (score{}) && !strings.Contains(strings.Join(p.said, ""), "[no tests to run]") {
			p.failed++
			p.said = append(p.said, "FAIL\t"+e.Package+"\tpassed without having run a test\n")
		}
		p.unfinished(c)
	case "fail":
		p.unfinished(c)
		p.failed = max(p.failed, 1)
		c.show(p.said[:max(0, len(p.said)-1)])
	case "skip": // no test files
	default: // start
		return
	}
	last := "?\t" + e.Package
	if len(p.said) > 0 {
		last = strings.TrimRight(p.said[len(p.said)-1], "\n")
	}
	fmt.Fprintf(c.out, "%s\t%v\n", last, p.score)
	c.add(p.score)
	delete(c.packages, e.Package)
}

// unfinished counts tests that began and have no verdict when their package has one: after a panic, a timeout or an exit.
func (p *pkg) unfinished(c *count) {
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		p.failed++
		c.show(append(p.running[name], "--- FAIL: "+name+": it did not end\n"))
	}
}

func (c *count) add(s score) {
	c.passed += s.passed
	c.failed += s.failed
	c.skipped += s.skipped
}

// end prints the counts and tells whether all is well. The error is that of `go test`.
func (c *count) end(err error) bool {
	for _, name := range slices.Sorted(maps.Keys(c.packages)) {
		p := c.packages[name]
		p.unfinished(c)
		p.failed++
		fmt.Fprintf(c.out, "FAIL\t%s\tended without a verdict\t%v\n", name, p.score)
		c.add(p.score)
	}
	if err != nil && c.failed == 0 {
		c.failed++
		fmt.Fprintf(c.out, "FAIL\tgo test: %v\n", err)
	}
	if c.score == (score{}) {
		fmt.Fprintln(c.out, "FAIL\tno test ran")
	}
	fmt.Fprintln(c.out, c.score)
	return c.failed == 0 && c.skipped == 0 && c.passed > 0
}

// show prints what was said, without the lines about tests that begin, wait and go on.
func (c *count) show(said []string) {
	for _, line := range said {
		if line != "" && !strings.HasPrefix(line, "=== ") {
			fmt.Fprintf(c.out, "%s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}
