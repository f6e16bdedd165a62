package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
}

func inModule(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	for name, body := range packages {
		file := "a_test.go"
		if body == "" {
			file = "a.go"
		}
		write(t, filepath.Join(dir, name, file), "package "+name+"\n"+body+"\n")
	}
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	t.Chdir(dir)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyPassingIsRight(t *testing.T) {
	inModule(t)
	for _, row := range []struct {
		args string
		ok   bool
		says string // a line of the output, or the end of one
		last string
	}{
		{"./passes ./untested", true, "[no test files]\t0 passed, 0 failed, 0 skipped", "6 passed, 0 failed, 0 skipped"},
		{"-run=FuzzB ./passes ./skips", true, "[no tests to run]\t0 passed, 0 failed, 0 skipped", "3 passed, 0 failed, 0 skipped"},
		{"./fails", false, "wrong answer", "1 passed, 2 failed, 0 skipped"},
		{"./skips", false, "no server here", "0 passed, 0 failed, 1 skipped"},
		{"./panics", false, "panic: boom [recovered, repanicked]", "0 passed, 1 failed, 0 skipped"},
		{"./exits", false, "--- FAIL: TestA: it did not end", "0 passed, 1 failed, 0 skipped"},
		{"-timeout=1s ./hangs", false, "--- FAIL: TestA: it did not end", "0 passed, 1 failed, 0 skipped"},
		{"./leaves", false, "0 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"},
		{"./runsnone", false, "passed without having run a test\t0 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"},
		{"./buildsnot", false, "undefined: missing", "0 passed, 1 failed, 0 skipped"},
		{"./vetsnot", false, "but call has 0 args", "0 passed, 1 failed, 0 skipped"},
		{"./importsnot", false, "[setup failed]\t0 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"},
		{"./untested", false, "no test ran", "0 passed, 0 failed, 0 skipped"},
		{"./missing", false, "[setup failed]\t0 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"},
		{"-count=many ./passes", false, "exit status 2", "0 passed, 1 failed, 0 skipped"},
		{"./passes ./fails ./skips ./buildsnot", false, "wrong answer", "7 passed, 3 failed, 1 skipped"},
	} {
		t.Run(row.args, func(t *testing.T) {
			var out, complaints strings.Builder
			ok := run(t.Context(), strings.Fields(row.args), &out, &complaints)
			if ok != row.ok {
				t.Errorf("ok = %v, want %v", ok, row.ok)
			}
			if !strings.Contains(out.String(), row.says+"\n") {
				t.Errorf("no line says %q", row.says)
			}
			if !strings.HasSuffix(out.String(), "\n"+row.last+"\n") {
				t.Errorf("the last line is not %q", row.last)
			}
			if strings.Contains(out.String(), "said by one that passed") {
				t.Error("it shows what a test said that passed")
			}
			if t.Failed() {
				t.Logf("output:\n%s\ncomplaints:\n%s", &out, &complaints)
			}
		})
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
		{"whole", passed, nil, true, "1 passed, 0 failed, 0 skipped"},
		{"not JSON", "warning: something\n" + passed, nil, true, "1 passed, 0 failed, 0 skipped"},
		{"empty", "", nil, false, "0 passed, 0 failed, 0 skipped"},
		{"go test failed and did not say why", passed, errors.New("exit status 1"), false, "1 passed, 1 failed, 0 skipped"},
		{"package began", passed + `{"Action":"start","Package":"m/b"}`, nil, false, "1 passed, 1 failed, 0 skipped"},
		{"test began", passed + `{"Action":"run","Package":"m/b","Test":"TestB"}`, nil, false, "1 passed, 2 failed, 0 skipped"},
		{"test passed, package did not end", passed + `{"Action":"pass","Package":"m/b","Test":"TestB"}`, nil, false, "2 passed, 1 failed, 0 skipped"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out strings.Builder
			c := count{out: &out, packages: map[string]*pkg{}}
			if err := c.read(strings.NewReader(row.stream)); err != nil {
				t.Fatal(err)
			}
			if ok := c.end(row.err); ok != row.ok {
				t.Errorf("ok = %v, want %v", ok, row.ok)
			}
			if !strings.HasSuffix("\n"+out.String(), "\n"+row.last+"\n") {
				t.Errorf("the last line is not %q in:\n%s", row.last, &out)
			}
		})
	}
}
