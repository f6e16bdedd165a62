package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// progress prints a line for each package that ends, with what is still running, and one now and
// then in between. It is a testjson.EventHandler, whose methods are called one at a time.
type progress struct {
	out     io.Writer
	listed  int // packages with tests, as far as they could be counted
	started time.Time

	mu      sync.Mutex
	done    int
	running map[string]bool // packages by their import path
	none    []string        // packages that passed without having run a test that they have
	noTests map[string]bool // packages of which no test was asked for
}

func newProgress(out io.Writer, listed int) *progress {
	return &progress{out: out, listed: listed, started: time.Now(), running: map[string]bool{}, noTests: map[string]bool{}}
}

// Event takes note of the beginning and the end of a package.
func (p *progress) Event(event testjson.TestEvent, execution *testjson.Execution) error {
	if event.Package == "" || event.Test != "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event.Action {
	case "start":
		p.running[event.Package] = true
	case testjson.ActionOutput:
		if strings.Contains(event.Output, "[no tests to run]") {
			p.noTests[event.Package] = true
		}
	case testjson.ActionPass, testjson.ActionFail:
		p.ended(event, execution.Package(event.Package))
	case testjson.ActionSkip:
		delete(p.running, event.Package) // it has no test files
	default:
	}
	return nil
}

func (p *progress) ended(event testjson.TestEvent, result *testjson.Package) {
	delete(p.running, event.Package)
	p.done++
	word := "ok  "
	switch {
	case event.Action == testjson.ActionFail:
		word = "FAIL"
	case result.Total == 0 && !p.noTests[event.Package]:
		word = "none"
		p.none = append(p.none, event.Package)
	}
	p.say(fmt.Sprintf("%s %s, %d tests in %.1f s", word, short(event.Package), result.Total, event.Elapsed))
}

// Err prints what `go test` says on standard error, such as what it downloads.
func (p *progress) Err(text string) error {
	_, err := fmt.Fprintln(p.out, text)
	return err
}

// say prints a line with how far the run is: what has just ended, if anything has, and what runs. A
// package runs from when its tests begin; before that it is compiled.
func (p *progress) say(ended string) {
	parts := []string{}
	if ended != "" {
		parts = append(parts, ended)
	}
	if len(p.running) > 0 {
		parts = append(parts, "running: "+strings.Join(p.names(), " "))
	} else if ended == "" {
		parts = append(parts, "compiling")
	}
	took := time.Since(p.started).Round(time.Second)
	fmt.Fprintf(p.out, "[%d of %d, %v] %s\n", p.done, p.listed, took, strings.Join(parts, "; "))
}

func (p *progress) names() []string {
	var names []string
	for name := range p.running {
		names = append(names, short(name))
	}
	slices.Sort(names)
	return names
}

// short is a package's path without the module's.
func short(name string) string {
	if rest, isOurs := strings.CutPrefix(name, "github.com/coatcheck/coatcheck/"); isOurs {
		return rest
	}
	return path.Base(name)
}

// sayEvery prints a line of progress at an interval, until the function that it returns is called.
func (p *progress) sayEvery(interval time.Duration) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				p.mu.Lock()
				p.say("")
				p.mu.Unlock()
			}
		}
	})
	return func() {
		close(ended)
		wg.Wait()
	}
}

// incomplete returns an error if a package has no verdict, or passed without having run a test.
func (p *progress) incomplete() error {
	var errs []error
	if len(p.running) > 0 {
		errs = append(errs, errors.New("ended without a verdict: "+strings.Join(p.names(), " ")))
	}
	if len(p.none) > 0 {
		errs = append(errs, errors.New("passed without having run a test: "+strings.Join(p.none, " ")))
	}
	return errors.Join(errs...)
}
