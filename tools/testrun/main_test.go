package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// The tests start themselves in place of the program.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == timedFlag {
		os.Exit(timed(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// The test file of each package of the module that the tests here run.
var packages = map[string]string{
	"passes": `import "testing"
		func TestA(t *testing.T) { t.Run("one", func(*testing.T) {}); t.Run("two", func(*testing.T) {}) }
		func FuzzB(f *testing.F) { f.Add(1); f.Add(2); f.Fuzz(func(*testing.T, int) {}) }`,
	"fails": `import "testing"
		func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("wrong answer") }) }
		func TestB(t *testing.T) { t.Log("said by one that passed") }`,
	"skips": `import "testing"
		func TestA(t *testing.T) { t.Skip("no server here") }`,
	"panics": `import "testing"
		func TestA(t *testing.T) { panic("boom") }
		func TestB(t *testing.T) {}`,
	"exits": `import ("os"; "testing")
		func TestA(t *testing.T) { os.Exit(3) }`,
	"hangs": `import "testing"
		func TestA(t *testing.T) { select {} }`,
	"leaves": `import ("os"; "testing")
		func TestMain(*testing.M) { os.Exit(1) }
		func TestA(t *testing.T) {}`,
	"runsnone": `import ("os"; "testing")
		func TestMain(*testing.M) { os.Exit(0) }
		func TestA(t *testing.T) {}`,
	"buildsnot": `import "testing"
		func TestA(t *testing.T) { missing() }`,
	"vetsnot": `import "testing"
		func TestA(t *testing.T) { t.Logf("%d") }`,
	"importsnot": `import _ "nowhere/at/all"`,
	"untested":   ``,
	"races": `import "testing"
		func TestA(t *testing.T) {
			n, done := 0, make(chan bool)
			go func() { n++; done <- true }()
			n++
			<-done
		}`,
	"tagged": `import "testing"
		func TestA(t *testing.T) {}`,
	"raced": `import "testing"
		func TestA(t *testing.T) {}`,
	"finds": `import "testing"
		func FuzzA(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if n != 1 { t.Error("not one") } }) }`,
	"fuzzbuildsnot": `import "testing"
		func FuzzA(f *testing.F) { missing() }`,
	"mixed": `import "testing"
		func TestUntagged(t *testing.T) {}`,
	"alltagged": `import "testing"
		func TestTaggedToo(t *testing.T) {}`,
}

// The build constraints of some of them.
var constraints = map[string]string{"tagged": "check", "alltagged": "check", "raced": "race"}

func inModule(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	for name, body := range packages {
		file := "a_test.go"
		if body == "" {
			file = "a.go"
		}
		constraint := ""
		if tag := constraints[name]; tag != "" {
			constraint = "//go:build " + tag + "\n\n"
		}
		write(t, filepath.Join(dir, name, file), constraint+"package "+name+"\n"+body+"\n")
	}
	write(t, filepath.Join(dir, "mixed", "b_test.go"), `//go:build check

package mixed

import "testing"

func TestTagged(t *testing.T) {}
func FuzzTagged(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }
`)
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	t.Chdir(dir)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatalf("making the folder of %s: %v", file, err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatalf("writing %s: %v", file, err)
	}
}

func TestOnlyPassingIsRight(t *testing.T) {
	inModule(t)
	binaries := t.TempDir()
	for _, row := range []struct {
		args string
		ok   bool
		says string // a part of the output
		last string // how the last line begins
	}{
		{"./passes ./untested", true, "[1 of 1, ", "6 passed, 0 failed, 0 skipped in "},
		{"./passes ./fails", false, "[2 of 2, ", "7 passed, 2 failed, 0 skipped in "},
		{"-run=FuzzB ./passes ./skips", true, "ok   skips, 0 tests", "3 passed, 0 failed, 0 skipped in "},
		{"-tags=check ./tagged", true, "[1 of 1, ", "1 passed, 0 failed, 0 skipped in "},
		{"-tags=check -without=check ./mixed ./alltagged ./fails", false, "ok   mixed, 1 tests", "2 passed, 2 failed, 0 skipped in "},
		{"-tags=check -only=check ./mixed ./alltagged ./fails", true, "[2 of 2, ", "3 passed, 0 failed, 0 skipped in "},
		{"-tags=check -only=check ./fails", false, "no test needs check", "go list: "},
		{"-tags=check -without=check ./tagged ./fails", false, "others without: TestA", "go list: "},
		{"-race -tags=check -without=check ./mixed ./raced", true, "ok   mixed, 1 tests", "2 passed, 0 failed, 0 skipped in "},
		{"-race -tags=check -only=check ./mixed", true, "ok   mixed, 2 tests", "2 passed, 0 failed, 0 skipped in "},
		{"./fails", false, "wrong answer", "1 passed, 2 failed, 0 skipped in "},
		{"./skips", false, "no server here", "0 passed, 0 failed, 1 skipped in "},
		{"-count=1 ./panics", false, "panic: boom [recovered, repanicked]", "0 passed, 1 failed, 0 skipped in "},
		{"-count=1 ./exits", false, "FAIL: m/exits TestA", "0 passed, 1 failed, 0 skipped in "},
		{"-count=1 -timeout=1s ./hangs", false, "FAIL: m/hangs TestA", "0 passed, 2 failed, 0 skipped in "},
		{"-count=1 ./leaves", false, "FAIL leaves, 0 tests", "0 passed, 1 failed, 0 skipped in "},
		{"-count=1 ./runsnone", false, "passed without having run a test: m/runsnone", "0 passed, 1 failed, 0 skipped in "},
		{"./buildsnot", false, "undefined: missing", "0 passed, 1 failed, 0 skipped in "},
		{"./vetsnot", false, "but call has 0 args", "0 passed, 1 failed, 0 skipped in "},
		{"./importsnot", false, "nowhere/at/all", "0 passed, 1 failed, 0 skipped in "},
		{"./untested", false, "no test ran", "0 passed, 0 failed, 0 skipped in "},
		{"./missing", false, "FAIL missing, 0 tests", "0 passed, 1 failed, 0 skipped in "},
		{"-count=many ./passes", false, "exit status 2", "0 passed, 1 failed, 0 skipped in "},
		{"-race ./raced", true, "ok   raced, 1 tests", "1 passed, 0 failed, 0 skipped in "},
		{"-count=1 -race ./races", false, "WARNING: DATA RACE", "0 passed, 1 failed, 0 skipped in "},
		{"./passes ./fails ./skips ./buildsnot", false, "wrong answer", "7 passed, 3 failed, 1 skipped in "},
	} {
		t.Run(row.args, func(t *testing.T) {
			var out strings.Builder
			if ok := run(t.Context(), strings.Fields(row.args), binaries, &out); ok != row.ok {
				t.Errorf("got ok = %v, want %v", ok, row.ok)
			}
			wantOutput(t, out.String(), row.says, row.last)
		})
	}
}

func TestFuzzTestsRunFromTheBinariesOfTests(t *testing.T) {
	inModule(t)
	binaries := t.TempDir()
	for _, row := range []struct {
		args string
		ok   bool
		says string
		last string
	}{
		{"./passes ./fails", true, "ok   passes FuzzB, 30x in ", "1 passed, 0 failed, 0 skipped in "},
		{"-tags=check ./mixed ./passes", true, "ok   mixed FuzzTagged, 30x in ", "2 passed, 0 failed, 0 skipped in "},
		{"-tags=check -without=check ./mixed ./passes", true, "ok   passes FuzzB, 30x in ", "1 passed, 0 failed, 0 skipped in "},
		{"-race ./passes", true, "ok   passes FuzzB, 30x in ", "1 passed, 0 failed, 0 skipped in "},
		{"./finds", false, "FAIL finds FuzzA: exit status 1", "0 passed, 1 failed, 0 skipped in "},
		{"./fails", false, "0 passed", "0 passed, 0 failed, 0 skipped in "},
		{"./fuzzbuildsnot", false, "undefined: missing", "building the fuzz tests: exit status 1"},
	} {
		t.Run(row.args, func(t *testing.T) {
			var out strings.Builder
			args, amount := cutFuzz(append([]string{"-fuzz=30x"}, strings.Fields(row.args)...))
			if ok := fuzz(t.Context(), args, amount, binaries, &out); ok != row.ok {
				t.Errorf("got ok = %v, want %v", ok, row.ok)
			}
			wantOutput(t, out.String(), row.says, row.last)
		})
	}
}

func wantOutput(t *testing.T, out, says, last string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	switch {
	case !strings.Contains(out, says):
		t.Errorf("%q is missing in:\n%s", says, out)
	case !strings.HasPrefix(lines[len(lines)-1], last):
		t.Errorf("the last line does not begin with %q in:\n%s", last, out)
	case strings.Contains(out, "said by one that passed"):
		t.Errorf("it shows what a test said that passed:\n%s", out)
	}
}

// What `go test` does not do, but a killed one might.
func TestAStreamThatBreaksOffIsAFailure(t *testing.T) {
	const passed = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a"}
`
	for _, row := range []struct {
		name, stream string
		err          error
		ok           bool
		last         string
	}{
		{"whole", passed, nil, true, "1 passed, 0 failed, 0 skipped in "},
		{"not JSON", "warning: something\n" + passed, nil, true, "1 passed, 0 failed, 0 skipped in "},
		{"empty", "", nil, false, "0 passed, 0 failed, 0 skipped in "},
		{"go test failed and did not say why", passed, errors.New("exit status 1"), false, "1 passed, 1 failed, 0 skipped in "},
		{"package began", passed + `{"Action":"start","Package":"m/b"}`, nil, false, "1 passed, 1 failed, 0 skipped in "},
		{"test began", passed + `{"Action":"run","Package":"m/b","Test":"TestB"}`, nil, false, "1 passed, 1 failed, 0 skipped in "},
		{"test passed, package did not end", passed + `{"Action":"start","Package":"m/b"}
{"Action":"pass","Package":"m/b","Test":"TestB"}`, nil, false, "2 passed, 1 failed, 0 skipped in "},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out strings.Builder
			p := newProgress(&out, 1)
			execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
				Stdout: strings.NewReader(row.stream), Handler: p, IgnoreNonJSONOutputLines: true,
			})
			if err != nil {
				t.Fatalf("reading the events: %v", err)
			}
			if ok := verdict(p, execution, errors.Join(row.err, p.incomplete())); ok != row.ok {
				t.Errorf("got ok = %v, want %v", ok, row.ok)
			}
			wantOutput(t, out.String(), "", row.last)
		})
	}
}

func TestProgressSaysWhatRunsAndForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, 12)
		stop := p.sayEvery(30 * time.Second)
		for _, name := range []string{"server", "api"} {
			event := testjson.TestEvent{Action: "start", Package: "github.com/coatcheck/coatcheck/" + name}
			if err := p.Event(event, nil); err != nil {
				t.Fatalf("start of %s: %v", name, err)
			}
		}
		time.Sleep(61 * time.Second)
		stop()
		want := "[0 of 12, 30s] running: api server\n[0 of 12, 1m0s] running: api server\n"
		if got := out.String(); got != want {
			t.Errorf("after 61 s: got %q, want %q", got, want)
		}
	})
}
