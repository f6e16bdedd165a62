package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestOnlyWhatChangedIsLinkedAnew(t *testing.T) {
	inModule(t)
	binaries := t.TempDir()
	const args = "-count=1 ./fails ./passes ./untested"
	run(t.Context(), strings.Fields(args), binaries, io.Discard)
	passes, fails := stat(t, filepath.Join(binaries, "plain", "passes.test")), stat(t, filepath.Join(binaries, "plain", "fails.test"))

	for _, row := range []struct {
		change     string // the test file of package passes, if it changes
		ok, anew   bool
		says, last string
	}{
		{"", true, false, "ok   passes, 6 tests", "6 passed, 0 failed, 0 skipped in "},
		{`func TestB(t *testing.T) { t.Error("not any more") }`, false, true, "not any more", "0 passed, 1 failed, 0 skipped in "},
		{`func TestB(t *testing.T) { missing() }`, false, false, "undefined: missing", "0 passed, 1 failed, 0 skipped in "},
		{`func TestB(t *testing.T) {}`, true, true, "ok   passes, 1 tests", "1 passed, 0 failed, 0 skipped in "},
	} {
		if row.change != "" {
			write(t, filepath.Join("passes", "a_test.go"), "package passes\nimport \"testing\"\n"+row.change+"\n")
		}
		var out strings.Builder
		if ok := run(t.Context(), []string{"-count=1", "./passes"}, binaries, &out); ok != row.ok {
			t.Errorf("after %q: got ok = %v, want %v", row.change, ok, row.ok)
		}
		wantOutput(t, out.String(), row.says, row.last)
		now := stat(t, filepath.Join(binaries, "plain", "passes.test"))
		if anew := !os.SameFile(passes, now); anew != row.anew {
			t.Errorf("after %q: got linked anew = %v, want %v", row.change, anew, row.anew)
		}
		passes = now
	}
	if !os.SameFile(fails, stat(t, filepath.Join(binaries, "plain", "fails.test"))) {
		t.Error("the test binary of a package that was not asked for is another")
	}
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatalf("looking at %s: %v", file, err)
	}
	return info
}

func TestPackagesOfOneNameAreTestedBoth(t *testing.T) {
	inModule(t)
	write(t, filepath.Join("other", "passes", "a_test.go"), "package passes\n"+packages["tagged"])
	var out strings.Builder
	if !run(t.Context(), []string{"-count=1", "./passes", "./other/passes"}, t.TempDir(), &out) {
		t.Error("got ok = false, want true")
	}
	wantOutput(t, out.String(), "[2 of 2, ", "7 passed, 0 failed, 0 skipped in ")
}

// What follows -args is the tests' own, and stands after the packages.
func TestArgumentsOfTheTestsReachThem(t *testing.T) {
	inModule(t)
	write(t, filepath.Join("takes", "a_test.go"), `package takes
		import ("flag"; "testing")
		var word = flag.String("word", "", "")
		func TestA(t *testing.T) { if *word != "./passes" { t.Fatal(*word) } }
	`)
	var out strings.Builder
	if !run(t.Context(), strings.Fields("-race ./takes -args -word ./passes"), t.TempDir(), &out) {
		t.Error("got ok = false, want true")
	}
	wantOutput(t, out.String(), "[1 of 1, ", "1 passed, 0 failed, 0 skipped in ")
}

func TestTheDearestPackagesAreNamed(t *testing.T) {
	inModule(t)
	write(t, filepath.Join("works", "a_test.go"), `package works
		import "testing"
		var sum int
		func TestA(*testing.T) { for i := range 3_000_000_000 { sum ^= i } }
	`)
	row := func(name string) string { return `\n +\d+\.\d \+ +\d+\.\d  ` + name }
	table := regexp.MustCompile(`(?s)processor seconds, user \+ system:` + row("works") + row(`\w+`) + row(`\w+`) +
		row("0 other packages") + row("compiling and linking") + row("in all") + `\n`)
	for _, args := range []string{"-count=1 ./passes ./works ./fails", "-count=1 ./works", "./passes ./works"} {
		var out strings.Builder
		run(t.Context(), strings.Fields(args), t.TempDir(), &out)
		if got, want := table.MatchString(out.String()), strings.Contains(args, "fails"); got != want {
			t.Errorf("%s: got a table = %v, want %v:\n%s", args, got, want, &out)
		}
	}
}

func TestATestThatKillsItselfFails(t *testing.T) {
	inModule(t)
	write(t, filepath.Join("killed", "a_test.go"), `package killed
		import ("syscall"; "testing")
		func TestA(t *testing.T) { _ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL); select {} }
	`)
	var out strings.Builder
	if run(t.Context(), []string{"-count=1", "./killed"}, t.TempDir(), &out) {
		t.Error("got ok = true, want false")
	}
	wantOutput(t, out.String(), "signal: killed", "0 passed, 1 failed, 0 skipped in ")
}

// A test that starts itself as a program may do so by `env NAME=VALUE PROGRAM`, which takes a path
// with an equals sign for one more variable.
func TestPathOfKeptBinariesIsNoVariable(t *testing.T) {
	for _, flag := range kept([]string{"-race", "-tags=check"}, "bin") {
		if path, is := strings.CutPrefix(flag, "bin"); is && strings.Contains(path, "=") {
			t.Errorf("the directory of the binaries: got %s, want one without =", flag)
		}
	}
}
