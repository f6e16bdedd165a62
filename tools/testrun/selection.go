package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Two flags select tests by the build tags of the files in which they stand. The test binaries are
// built with -tags as it is given, so that several runs, each of other tests, share all that is
// compiled and linked.
//
//	-tags=check,steps -without=check,steps    only tests in files that need neither tag
//	-tags=check,steps -only=check             only tests in files that need the tag check
const (
	withoutFlag = "-without="
	onlyFlag    = "-only="
)

// testName finds the tests of a file.
var testName = regexp.MustCompile(`(?m)^\s*func ((?:Test|Fuzz|Example)\w*)\(`)

// selection is a set of tests, as `go test` can be given it.
type selection struct {
	flag string   // -run or -skip with the names of tests; empty: all tests
	left []string // packages that have no test in the set
}

// selected returns the arguments of `go test` without the flags that select tests, and the tests
// that they select.
func selected(ctx context.Context, args []string) ([]string, selection, error) {
	at := slices.IndexFunc(args, isSelecting)
	if at < 0 {
		return args, selection{}, nil
	}
	flag := args[at]
	args = slices.Delete(slices.Clone(args), at, at+1)
	before, _ := cutArgs(args)
	_, tags, _ := strings.Cut(flag, "=")
	found, err := testsByTag(ctx, tags, slices.DeleteFunc(slices.Clone(before), isNoPackage))
	if err != nil {
		return nil, selection{}, err
	}
	if strings.HasPrefix(flag, withoutFlag) {
		names, left := found.choose(func(t tests) ([]string, bool) { return t.tagged, len(t.untagged) == 0 })
		if clash := found.clash(); len(clash) > 0 {
			return nil, selection{}, fmt.Errorf("these tests stand in files with %s and in others without: %s", tags, strings.Join(clash, " "))
		}
		return args, selection{"-skip=" + anyOf(names), left}, nil
	}
	names, left := found.choose(func(t tests) ([]string, bool) { return t.tagged, len(t.tagged) == 0 })
	if len(names) == 0 {
		return nil, selection{}, errors.New("no test needs " + tags)
	}
	return args, selection{"-run=" + anyOf(names), left}, nil
}

func isSelecting(arg string) bool {
	return strings.HasPrefix(arg, withoutFlag) || strings.HasPrefix(arg, onlyFlag)
}

func isNoPackage(arg string) bool { return !isPackage(arg) }

// anyOf returns a pattern of `go test` for tests with one of the names.
func anyOf(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// tests are the names of one package's tests: in files that need a tag, and in all other files.
type tests struct {
	dir              string
	tagged, untagged []string
}

type byPackage map[string]tests

// choose returns the sorted names of all packages, and the packages to leave out.
func (b byPackage) choose(of func(tests) (names []string, leave bool)) (names, left []string) {
	for name, each := range b {
		chosen, leave := of(each)
		names = append(names, chosen...)
		if leave {
			left = append(left, name)
		}
	}
	slices.Sort(names)
	slices.Sort(left)
	return slices.Compact(names), left
}

// clash returns the names that some file with a tag and some file without has: `go test` can only
// skip both.
func (b byPackage) clash() []string {
	tagged, _ := b.choose(func(t tests) ([]string, bool) { return t.tagged, false })
	untagged, _ := b.choose(func(t tests) ([]string, bool) { return t.untagged, false })
	return slices.DeleteFunc(tagged, func(name string) bool { return !slices.Contains(untagged, name) })
}

// testsByTag returns the tests of the packages, sorted by whether their file needs one of the tags.
func testsByTag(ctx context.Context, tags string, packages []string) (byPackage, error) {
	plain, err := testFiles(ctx, packages)
	if err != nil {
		return nil, err
	}
	all, err := testFiles(ctx, append([]string{"-tags=" + tags}, packages...))
	if err != nil {
		return nil, err
	}
	found := byPackage{}
	for name, files := range all {
		var each tests
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			each.dir = filepath.Dir(file)
			to := &each.tagged
			if slices.Contains(plain[name], file) {
				to = &each.untagged
			}
			for _, match := range testName.FindAllSubmatch(text, -1) {
				if test := string(match[1]); test != "TestMain" {
					*to = append(*to, test)
				}
			}
		}
		if len(each.tagged)+len(each.untagged) > 0 {
			found[name] = each
		}
	}
	return found, nil
}

// testFiles returns the paths of the test files of each package, by its import path.
func testFiles(ctx context.Context, args []string) (map[string][]string, error) {
	const form = `{{.ImportPath}}{{"\t"}}{{.Dir}}{{range .TestGoFiles}}{{"\t"}}{{.}}{{end}}{{range .XTestGoFiles}}{{"\t"}}{{.}}{{end}}`
	lines, err := goList(ctx, append([]string{"-e", "-f", form}, args...)...)
	files := map[string][]string{}
	for _, line := range lines {
		words := strings.Split(line, "\t")
		if len(words) < 2 {
			continue
		}
		files[words[0]] = nil
		for _, name := range words[2:] {
			files[words[0]] = append(files[words[0]], filepath.Join(words[1], name))
		}
	}
	return files, err
}
