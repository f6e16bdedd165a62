package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/licensecheck"
)

// licencesPage is the list that people read, and that a test holds against the binary.
const licencesPage = "docs/licences.md"

// allowed are licences, by their SPDX names, of code that may be in the binary: each lets it be
// used, changed and passed on under another licence beside it, as long as its text goes along.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unlicense", "Zlib"}

// excepted are modules with other licences, each with the reason why it may be there. A module
// whose licences become others is not excepted any more.
var excepted = map[string]exception{
	"github.com/go-sql-driver/mysql": {
		found: []string{"MPL-2.0"},
		why: "unchanged; the Mozilla Public License covers its own files, " +
			"whose source is where the Go tool fetches it, by its path and its version in go.mod.",
	},
}

type exception struct {
	found []string // what is found in its files
	why   string
}

// held is a module with its licences and their texts.
type held struct {
	module

	licences []string // SPDX names
	texts    []licenceText
}

type licenceText struct {
	file string // from the module's folder
	text []byte
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-._].*)?$`)

// vendored are packages of npm whose published files are in this repository and in the binary.
var vendored = []module{{path: "npm/uplot", version: "1.6.32", dir: "console/static"}}

// licencesOf finds the licences of every module in the binary, and what may not be there. The list
// is whole even if there is an error.
func licencesOf(ctx context.Context, root string, t target) ([]held, error) {
	modules, err := modulesOf(ctx, root, t)
	if err != nil {
		return nil, err
	}
	var all []held
	var faults []error
	for _, m := range vendored {
		m.dir = filepath.Join(root, m.dir)
		modules = append(modules, m)
	}
	for _, m := range modules {
		one, err := look(m)
		all, faults = append(all, one), append(faults, err)
	}
	return all, errors.Join(faults...)
}

// look reads the licences of a module: in its folder, and those of its packages in the binary.
func look(m module) (held, error) {
	one := held{module: m}
	for _, folder := range m.folders() {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return one, err
		}
		for _, entry := range entries {
			if entry.IsDir() || !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
			if err != nil {
				return one, err
			}
			file, err := filepath.Rel(m.dir, filepath.Join(folder, entry.Name()))
			if err != nil {
				return one, err
			}
			one.texts = append(one.texts, licenceText{filepath.ToSlash(file), text})
			one.licences = append(one.licences, namesOf(text)...)
		}
	}
	slices.Sort(one.licences)
	one.licences = slices.Compact(one.licences)
	return one, one.check()
}

// unknown stands for a text that is no known licence.
const unknown = "unknown"

// namesOf are the licences that a text holds; unknown if less than half of it is a licence.
func namesOf(text []byte) (names []string) {
	coverage := licensecheck.Scan(text)
	if coverage.Percent < 50 {
		return []string{unknown}
	}
	for _, match := range coverage.Match {
		names = append(names, match.ID)
	}
	return names
}

// check reports whether a module may be in the binary.
func (h held) check() error {
	if len(h.licences) == 0 {
		return fmt.Errorf("%s %s has no file with a licence, so it may not be used", h.path, h.version)
	}
	if slices.Equal(excepted[h.path].found, h.licences) {
		return nil
	}
	for _, name := range h.licences {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("%s %s has the licence %s, which is not on the list of those that may be in the binary "+
				"(tools/release/licences.go): take another module, or say there why it may",
				h.path, h.version, name)
		}
	}
	return nil
}

func page(all []held) string {
	var b strings.Builder
	b.WriteString("# Licences\n\n" + wrapped("The modules whose code is in the binary `coatcheck`, "+
		"as it is built for Linux, beside Go's standard library (BSD-3-Clause) and this repository itself (Apache-2.0). "+
		"`make licences` writes this page, and a test fails where a module is missing, "+
		"or has a licence that is not one of "+strings.Join(allowed, ", ")+
		" and is not excepted below. What is only in tests, benchmarks, examples and tools is not in the binary, and not here.", "") + "\n\n")
	b.WriteString(wrapped("Most of these licences want their text to go along with a binary: "+
		"`make release` writes all of them into each archive. Versions are those of `go.mod`.", "") + "\n\n| module | licence |\n|---|---|\n")
	for _, one := range all {
		fmt.Fprintf(&b, "| %s | %s |\n", one.path, strings.Join(one.licences, ", "))
	}
	b.WriteString("\n## Exceptions\n")
	for _, one := range all {
		if e, ok := excepted[one.path]; ok {
			b.WriteString("\n" + wrapped("- "+one.path+": "+e.why, "  "))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// wrapped breaks a text into lines of at most 100 characters, as in all documents, and indents.
func wrapped(text, indent string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line+" "+word) > 100:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

func writeLicences(ctx context.Context, root, file string) error {
	all, faults := licencesOf(ctx, root, linux)
	if len(all) == 0 {
		return faults
	}
	return errors.Join(faults, os.WriteFile(filepath.Join(root, file), []byte(page(all)), 0o644)) //nolint:gosec // a page for all users
}

// printTexts prints the licences of all modules, and of Go itself.
func printTexts(ctx context.Context, root string, t target, out io.Writer) error {
	all, err := licencesOf(ctx, root, t)
	if err != nil {
		return err
	}
	own, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "LICENSE")) //nolint:staticcheck // the go command that runs this has set GOROOT
	if err != nil {
		return fmt.Errorf("the licence of Go: %w", err)
	}
	standard := held{module: module{path: "Go, its standard library", version: runtime.Version()}, texts: []licenceText{{"LICENSE", own}}}
	all = append([]held{standard}, all...)
	for _, one := range all {
		for _, licence := range one.texts {
			text, line := strings.TrimSpace(string(licence.text)), strings.Repeat("-", 80)
			if _, err := fmt.Fprintf(out, "%s %s, %s\n\n%s\n\n%s\n\n", one.path, one.version, licence.file, text, line); err != nil {
				return err
			}
		}
	}
	return nil
}
