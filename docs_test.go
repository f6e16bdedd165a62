package coatcheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")
	docFile    = regexp.MustCompile("`([a-zA-Z0-9_./*-]+/[a-zA-Z0-9_.*-]+\\.(?:go|lua|js|sh|py|yaml|yml|json))`")
	packageRow = regexp.MustCompile("(?m)^\\| `([a-z0-9]+)` \\| ")
	docLink    = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// Every test that a document names is there, and every file that it names or links to.
func TestDocumentsNameTestsAndFilesThatExist(t *testing.T) {
	tests := testNames(t)
	named := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			if !tests[match[1]] {
				t.Errorf("%s names %s, which there is not", name, match[1])
			}
		}
		for _, match := range docFile.FindAllStringSubmatch(string(text), -1) {
			here, _ := filepath.Glob(match[1]) // a bad pattern finds nothing
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(name), match[1]))
			if len(here)+len(beside) == 0 {
				t.Errorf("%s names the file %s, which there is not", name, match[1])
			}
		}
		for _, match := range docLink.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), match[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, match[1], err)
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test: does this test still read them?")
	}
}

// A newcomer looks there for what a package is.
func TestArchitectureNamesEveryInternalPackage(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !strings.Contains(string(text), "`"+folder.Name()+"`") {
			t.Errorf("docs/architecture.md does not name internal/%s: add a row to its last table", folder.Name())
		}
	}
	_, table, _ := strings.Cut(string(text), "## What stands in")
	for _, match := range packageRow.FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(filepath.Join("internal", match[1])); err != nil {
			t.Errorf("docs/architecture.md names the package internal/%s: %v", match[1], err)
		}
	}
}

// walk lists the files with a suffix, but for those of hidden folders.
func walk(t *testing.T, suffix string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(name) > 1 && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func documents(t *testing.T) []string { return walk(t, ".md") }

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range walk(t, "_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range funcNames(file) {
			found[f] = true
		}
	}
	return found
}

func funcNames(file *ast.File) (names []string) {
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		}
	}
	return names
}
