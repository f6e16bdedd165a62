package coatcheck_test

import (
	"cmp"
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// proseWidth is the widest line of prose, in characters; a tab counts four.
const proseWidth = 100

// prose is a line of a comment or of a document.
type prose struct {
	line  int
	text  string // of the whole line
	width int    // 0 = it may be of any width
}

func TestProseIsNarrow(t *testing.T) {
	for suffix, read := range map[string]func(string) []prose{
		".go": goProse, ".lua": luaProse, ".js": jsProse, ".mjs": jsProse, ".ts": jsProse, ".py": pythonProse, ".md": markdownProse,
		".yml": hashProse, ".yaml": hashProse, ".service": hashProse, "Dockerfile": hashProse, "Makefile": hashProse,
	} {
		for _, name := range walk(t, suffix) {
			text, err := os.ReadFile(name)
			expect.NoError(t, "os.ReadFile", err)
			for _, line := range read(string(text)) {
				if line.width > proseWidth {
					t.Errorf("%s:%d: %d characters wide: wrap it at %d", name, line.line, line.width, proseWidth)
				}
			}
		}
	}
}

// errorMethod is the method that makes an exported type an error.
var errorMethod = regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?([A-Z]\w*)\) Error\(\) string`)

func TestExportedErrorTypesEndInError(t *testing.T) {
	for _, name := range walk(t, ".go") {
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		for _, method := range errorMethod.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(method[1], "Error") {
				t.Errorf("%s: the error type %s: its name does not end in Error", name, method[1])
			}
		}
	}
}

func widthOf(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

// goProse is the comments. Directives and the output of examples may be of any width, and so may
// comments with a link and preformatted ones; a comment that follows code counts with the code.
func goProse(text string) (found []prose) {
	lines := strings.Split(text, "\n")
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	output, last := false, 0
	for {
		at, kind, comment := s.Scan()
		if kind == token.EOF {
			return found
		}
		if kind != token.COMMENT {
			continue
		}
		first := file.Line(at)
		output = first == last+1 && output || strings.HasPrefix(comment, "// Output:")
		for i, part := range strings.Split(comment, "\n") {
			last = first + i
			wide := output || strings.HasPrefix(part, "//go:") || strings.Contains(part, "//nolint") || strings.HasPrefix(part, "//\t") || strings.Contains(part, "://")
			found = append(found, newProse(last, lines[last-1], wide))
		}
	}
}

func newProse(line int, whole string, wide bool) prose {
	if wide {
		return prose{line: line, text: whole}
	}
	return prose{line, whole, widthOf(whole)}
}

// scriptProse is the lines that are comments as a whole, after some mark.
func scriptProse(text, mark string) (found []prose) {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), mark) {
			found = append(found, newProse(i+1, line, strings.Contains(line, "://")))
		}
	}
	return found
}

func luaProse(text string) []prose { return scriptProse(text, "--") }

// jsProse also has the lines of blocks, which begin with a star.
func jsProse(text string) []prose {
	return slices.Concat(scriptProse(text, "//"), scriptProse(text, "/**"), scriptProse(text, "* "))
}

// pythonProse is comments that have their line to themselves, and docstrings.
func pythonProse(text string) (found []prose) {
	docstring := false
	for i, line := range strings.Split(text, "\n") {
		marks := strings.Count(line, `"""`)
		if trimmed := strings.TrimSpace(line); docstring || strings.HasPrefix(trimmed, `"""`) || strings.HasPrefix(trimmed, "#") {
			found = append(found, newProse(i+1, line, strings.Contains(line, "://")))
		}
		docstring = docstring != (marks == 1)
	}
	return found
}

// hashProse is that of YAML, units, the Makefile and the Dockerfile. What is aligned by spaces may
// be of any width.
func hashProse(text string) []prose {
	return slices.DeleteFunc(scriptProse(text, "#"), func(p prose) bool { return strings.Contains(strings.TrimSpace(p.text), "  ") })
}

// markdownProse is all but blocks of code; tables and lines with a link may be of any width.
func markdownProse(text string) (found []prose) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
		case !code && !strings.HasPrefix(line, "    "):
			wide := cmp.Or(strings.HasPrefix(trimmed, "|"), strings.Contains(line, "]("), strings.Contains(line, "://"), strings.HasPrefix(trimmed, "#"))
			found = append(found, newProse(i+1, line, wide))
		}
	}
	return found
}

func TestProseIsFoundWhereItStands(t *testing.T) {
	wide := strings.Repeat("x", proseWidth)
	for name, row := range map[string]struct {
		read func(string) []prose
		text string
		want int
	}{
		"a string":              {goProse, "package p\n\nvar s = \"// " + wide + "\"\n", 0},
		"a wide comment":        {goProse, "package p\n\n// " + wide + "\n", 1},
		"the output of example": {goProse, "package p\n\n// Output: " + wide + "\n// " + wide + "\n", 0},
		"a comment after code":  {goProse, "package p\n\nvar s = 1 // " + wide + "\n", 1},
		"a Lua comment":         {luaProse, "local a = 1\n-- " + wide + "\n", 1},
		"a JS block":            {jsProse, "/** " + wide + " */\n/**\n * " + wide + "\n */\n", 2},
		"a Python docstring": {pythonProse,
			"def f():\n    \"\"\"" + wide + "\"\"\"\n    s = '" + wide + "'\n\n\n\"\"\"One.\n\n" + wide + "x\n\"\"\"\n# " + wide + "\n", 3},
		"a comment in YAML": {hashProse, "# " + wide + "\n#   a    " + wide + "\na: '# " + wide + "'\n  # " + wide + "\n", 2},
		"Markdown":          {markdownProse, "```\n" + wide + "x\n```\n| " + wide + " |\n" + wide + " x\n", 1},
	} {
		found := 0
		for _, line := range row.read(row.text) {
			if line.width > proseWidth {
				found++
			}
		}
		expect.Equal(t, name+": lines that are too wide", found, row.want)
	}
}
