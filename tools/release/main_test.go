package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Every module in the binary is in docs/licences.md, with a licence that may be there.
func TestListOfLicencesIsWhatTheBinaryHolds(t *testing.T) {
	all, err := licencesOf(t.Context(), root, linux)
	if err != nil {
		t.Errorf("the licences in the binary: %v", err)
	}
	written, err := os.ReadFile(filepath.Join(root, licencesPage))
	if err != nil {
		t.Fatalf("reading the page of licences: %v", err)
	}
	if got, want := page(all), string(written); got != want {
		t.Errorf("%s is not what the binary holds; make licences writes it anew. Lines that differ:\n%s", licencesPage, strings.Join(differing(got, want), "\n"))
	}
	for path := range excepted {
		if !slices.ContainsFunc(all, func(one held) bool { return one.path == path }) {
			t.Errorf("%s is excepted, and not in the binary", path)
		}
	}
	for _, want := range []string{"github.com/redis/go-redis/v9", "github.com/labstack/echo/v4"} {
		if !slices.ContainsFunc(all, func(one held) bool { return one.path == want && len(one.texts) > 0 }) {
			t.Errorf("%s was not met: does this still look at the binary?", want)
		}
	}
}

// differing are the lines of one text that the other has not.
func differing(a, b string) (lines []string) {
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			lines = append(lines, "+ "+strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(b) {
		if !strings.Contains(a, line) {
			lines = append(lines, "- "+strings.TrimSpace(line))
		}
	}
	return lines
}

const zeroBSD = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.\n\n" +
	"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT " +
	"SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF " +
	"CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.\n"

// Each row is a module with files; an empty fault means that it may be in the binary.
func TestModulesThatMayNotBeInTheBinaryAreFound(t *testing.T) {
	for _, row := range []struct {
		name, module string
		files        map[string]string
		licences     []string
		fault        string
	}{
		{"permissive", "example/a", map[string]string{"LICENSE": zeroBSD}, []string{"0BSD"}, ""},
		{"spelled otherwise", "example/a", map[string]string{"licence.md": zeroBSD}, []string{"0BSD"}, ""},
		{"without a licence", "example/a", map[string]string{"README.md": "free for all"}, nil, "has no file with a licence"},
		{"its own words", "example/a", map[string]string{"LICENSE": "All rights reserved. You may look at this code on Tuesdays."}, []string{unknown}, "has the licence unknown"},
		{"another in a folder that is used", "example/a", map[string]string{"LICENSE": zeroBSD, "used/inner/x.go": "", "used/COPYING": "Ask me."}, []string{"0BSD", unknown}, "has the licence unknown"},
		{"another in a folder that is not used", "example/a", map[string]string{"LICENSE": zeroBSD, "other/COPYING": "Ask me."}, []string{"0BSD"}, ""},
		{"not for trade", "example/a", map[string]string{"LICENSE": "https://creativecommons.org/licenses/by-nc/4.0/"}, []string{"CC-BY-NC-4.0"}, "has the licence CC-BY-NC-4.0"},
		{"excepted, and now another", "github.com/go-sql-driver/mysql", map[string]string{"LICENSE": "Ask me."}, []string{unknown}, "has the licence unknown"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := module{path: row.module, version: "v1.0.0", dir: t.TempDir()}
			for name, text := range row.files {
				file := filepath.Join(m.dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatalf("writing %s: %v", name, err)
				}
				if strings.HasSuffix(name, ".go") {
					m.packages = append(m.packages, filepath.Dir(file))
				}
			}
			one, err := look(m)
			if !slices.Equal(one.licences, row.licences) {
				t.Errorf("licences %q, want %q", one.licences, row.licences)
			}
			if row.fault == "" && err != nil || row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)) {
				t.Errorf("%v, want %q", err, row.fault)
			}
		})
	}
}

// Whatever has to go along with the binary is printed: the licence of each module, and Go's.
func TestTextsOfAllLicencesArePrinted(t *testing.T) {
	var texts bytes.Buffer
	if err := printTexts(t.Context(), root, linux, &texts); err != nil {
		t.Fatalf("printing the texts of licences: %v", err)
	}
	for _, want := range []string{"Go, its standard library", "github.com/go-sql-driver/mysql v1.10.1, LICENSE", "github.com/redis/go-redis/v9"} {
		if !strings.Contains(texts.String(), want) {
			t.Errorf("the texts lack %s", want)
		}
	}
}

// A bill names the program, Go and every module, with package URLs as their specification wants
// them, and is the same each time.
func TestBillNamesEveryModule(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "github.com/coatcheck/coatcheck", Version: "v0.1.0"},
		Deps: []*debug.Module{
			{Path: "github.com/HdrHistogram/hdrhistogram-go", Version: "v1.4.0", Sum: "h1:abc="},
			{Path: "example/old", Version: "v2.0.0+incompatible"},
			{Path: "example/replaced", Version: "v1.0.0", Replace: &debug.Module{Path: "example/fork", Version: "v1.0.1"}},
		},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef"}, {Key: "-ldflags", Value: "-X secret"}},
	}
	b := billOf(info, map[string][]string{"github.com/HdrHistogram/hdrhistogram-go@v1.4.0": {"MIT"}, "example/old@v1.0.0": {"ISC"}})
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatalf("the bill of materials as JSON: %v", err)
	}
	const want = `{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"metadata":{"component":{"bom-ref":"pkg:golang/github.com/coatcheck/coatcheck@v0.1.0","type":"application",` +
		`"name":"github.com/coatcheck/coatcheck","version":"v0.1.0","purl":"pkg:golang/github.com/coatcheck/coatcheck@v0.1.0","licenses":[{"license":{"id":"Apache-2.0"}}],` +
		`"properties":[{"name":"build:vcs.revision","value":"abcdef"}]}},"components":[` +
		`{"bom-ref":"pkg:golang/stdlib@1.26.8","type":"library","name":"stdlib","version":"1.26.8","purl":"pkg:golang/stdlib@1.26.8","licenses":[{"license":{"id":"BSD-3-Clause"}}]},` +
		`{"bom-ref":"pkg:golang/github.com/hdrhistogram/hdrhistogram-go@v1.4.0","type":"library","name":"github.com/HdrHistogram/hdrhistogram-go","version":"v1.4.0",` +
		`"purl":"pkg:golang/github.com/hdrhistogram/hdrhistogram-go@v1.4.0","licenses":[{"license":{"id":"MIT"}}],"properties":[{"name":"go:sum","value":"h1:abc="}]},` +
		`{"bom-ref":"pkg:golang/example/old@v2.0.0%2Bincompatible","type":"library","name":"example/old","version":"v2.0.0+incompatible","purl":"pkg:golang/example/old@v2.0.0%2Bincompatible"},` +
		`{"bom-ref":"pkg:golang/example/fork@v1.0.1","type":"library","name":"example/fork","version":"v1.0.1","purl":"pkg:golang/example/fork@v1.0.1"},` +
		`{"bom-ref":"pkg:npm/uplot@1.6.32","type":"library","name":"npm/uplot","version":"1.6.32","purl":"pkg:npm/uplot@1.6.32"}],` +
		`"dependencies":[{"ref":"pkg:golang/github.com/coatcheck/coatcheck@v0.1.0","dependsOn":["pkg:golang/stdlib@1.26.8","pkg:golang/github.com/hdrhistogram/hdrhistogram-go@v1.4.0",` +
		`"pkg:golang/example/old@v2.0.0%2Bincompatible","pkg:golang/example/fork@v1.0.1","pkg:npm/uplot@1.6.32"]}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// The bill of a real binary, which is this test: it has as many components as modules, and Go.
func TestBillOfABinary(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("this test holds no build information")
	}
	var out bytes.Buffer
	if err := printBill(t.Context(), root, os.Args[0], &out); err != nil {
		t.Fatalf("printing the bill of materials: %v", err)
	}
	var b bill
	if err := json.Unmarshal(out.Bytes(), &b); err != nil || len(b.Components) != len(info.Deps)+1+len(vendored) || b.Components[0].Name != "stdlib" {
		t.Errorf("%d components of %d modules, what is vendored, and Go: %v", len(b.Components), len(info.Deps), err)
	}
	if err := printBill(t.Context(), root, "main.go", io.Discard); err == nil {
		t.Error("a file that is no binary has a bill")
	}
}

func TestBuildsThatDifferAreFound(t *testing.T) {
	for _, row := range []struct{ name, one, two, fault string }{
		{"alike", "code", "code", ""},
		{"other bytes", "code", "c0de", "differ"},
		{"a path of the folder", "code /tmp/x/main.go", "code /tmp/x/main.go", "holds the path"},
	} {
		err := compare([2][]byte{[]byte(row.one), []byte(row.two)}, "/tmp/x")
		if row.fault == "" && err != nil || row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.fault)
		}
	}
}

func TestUsageIsSaid(t *testing.T) {
	for _, args := range [][]string{nil, {"bill"}, {"sbom"}, {"licences", "more"}} {
		expect.Error(t, fmt.Sprintf("release %q", args), run(t.Context(), args, io.Discard), errUsage)
	}
	folder := filepath.Join(t.TempDir(), "release")
	if err := run(t.Context(), []string{"release", folder, "linux/amd64", "plan9/amd64"}, io.Discard); err == nil || !strings.Contains(err.Error(), `"plan9/amd64" is no system of a release: [linux/amd64 `) {
		t.Errorf("a release for plan9: got %v, want an error that lists the systems there are", err)
	}
}
