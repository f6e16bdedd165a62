package coatcheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")
	docFile  = regexp.MustCompile("`([a-zA-Z0-9_./*-]+/[a-zA-Z0-9_.*-]+\\.(?:go|lua|js|sh|py|yaml|yml|json))`")
	aRoom    = regexp.MustCompile("^`([a-z/]*internal[a-z/]*)` ")
	aPackage = regexp.MustCompile(`^\| ` + "`([a-z0-9]+)`")
	docLink  = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

	headingLink  = regexp.MustCompile(`\]\(([^)#:\s]*)#([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	linkText     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	codeBlock    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// Every test that a document names is there, and every file that it names or links to.
func TestDocumentsNameTestsAndFilesThatExist(t *testing.T) {
	tests := testNames(t)
	named := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		for _, match := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			if !tests[match[1]] {
				t.Errorf("%s names %s, which there is not", name, match[1])
			}
		}
		for _, match := range docFile.FindAllStringSubmatch(string(text), -1) {
			here, _ := filepath.Glob(match[1]) // a bad pattern finds nothing
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(name), match[1]))
			files := slices.Concat(here, beside)
			if len(files) == 0 {
				t.Errorf("%s names the file %s, which there is not", name, match[1])
			} else if strings.HasSuffix(match[1], "_test.go") && !slices.ContainsFunc(files, func(file string) bool { return tests[file] }) {
				t.Errorf("%s names %s, which has no test", name, match[1])
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

// Every heading that a document links to is there, in the same document or in another.
func TestDocumentsLinkToHeadingsThatExist(t *testing.T) {
	headings := map[string]map[string]bool{}
	for _, name := range documents(t) {
		headings[name] = headingsOf(t, name)
	}
	links := 0
	for name := range headings {
		for _, match := range headingLink.FindAllStringSubmatch(withoutCode(t, name), -1) {
			target := name
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(name), match[1])
			}
			links++
			if known := headings[target]; known != nil && !known[match[2]] {
				t.Errorf("%s links to #%s of %s, which has no such heading", name, match[2], target)
			}
		}
	}
	if links == 0 {
		t.Error("no document links to a heading: does this test still read them?")
	}
}

// headingsOf returns the anchors that GitHub gives the headings of a document.
func headingsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(withoutCode(t, name), -1) {
		text := notInAnchors.ReplaceAllString(strings.ToLower(linkText.ReplaceAllString(match[1], "$1")), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}

func withoutCode(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	expect.NoError(t, "os.ReadFile", err)
	return codeBlock.ReplaceAllString(string(text), "")
}

// A newcomer looks there for what a package is.
func TestArchitectureNamesEveryInternalPackage(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	expect.NoError(t, "os.ReadFile", err)
	var named []string // the packages that the last section names
	var room string
	_, section, _ := strings.Cut(string(text), "## What stands in the `internal` folders\n")
	for line := range strings.Lines(section) {
		if match := aRoom.FindStringSubmatch(line); match != nil {
			room = match[1]
		} else if match := aPackage.FindStringSubmatch(line); match != nil {
			named = append(named, path.Join(room, match[1]))
		}
	}
	var there []string
	for _, room := range []string{"cmd/coatcheck/internal", "internal", "internal/testing", "server/internal"} {
		folders, err := os.ReadDir(room)
		expect.NoError(t, "os.ReadDir", err)
		for _, folder := range folders {
			if folder.Name() != "testing" {
				there = append(there, path.Join(room, folder.Name()))
			}
		}
	}
	slices.Sort(named)
	slices.Sort(there)
	if !slices.Equal(named, there) {
		t.Errorf("docs/architecture.md names in its last section\n%v\nand there are\n%v", named, there)
	}
}

// walk lists the files with a suffix, but for those of hidden folders and of bin.
func walk(t *testing.T, suffix string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (len(name) > 1 && strings.HasPrefix(entry.Name(), ".") || name == "bin") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
		return err
	})
	expect.NoError(t, "filepath.WalkDir", err)
	return names
}

func documents(t *testing.T) []string { return walk(t, ".md") }

// testNames returns the names of all tests, and of the files that have one.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range walk(t, "_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		expect.NoError(t, "parser.ParseFile", err)
		for _, f := range funcNames(file) {
			found[f] = true
			if f != "TestMain" && (strings.HasPrefix(f, "Example") || testName.MatchString("`"+f+"`")) {
				found[name] = true
			}
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
