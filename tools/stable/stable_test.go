package stable

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return string(text)
}

func last(t *testing.T) released {
	t.Helper()
	release, err := lastRelease()
	if err != nil {
		t.Fatalf("the last release: %v", err)
	}
	return release
}

// announced fails the test for broken promises that the changelog does not have.
func wantAnnounced(t *testing.T, broken []string) {
	t.Helper()
	release := last(t)
	for _, line := range release.unannounced(broken, read(t, "CHANGELOG.md")) {
		t.Errorf("%s has, and this tree has not: %s\nPut it back; or, if it has to go, CHANGELOG.md gets above %s:\n- **Breaking** `%s`: what to use instead",
			release.version, line, release.version, strings.ReplaceAll(line, "`", ""))
	}
}

// keeps compares the promises of a file with those that it had at the last release.
func keeps(t *testing.T, name string, least int, of func(text string) promises) {
	t.Helper()
	gone, _ := broken(t, name, least, of)
	wantAnnounced(t, gone)
}

// broken are the promises of a file that it had at the last release and has not, and those of now.
func broken(t *testing.T, name string, least int, of func(text string) promises) (gone []string, now promises) {
	t.Helper()
	before, err := last(t).file(t.Context(), name)
	if err != nil {
		t.Fatalf("%s at the last release: %v", name, err)
	}
	promised := of(before)
	if len(promised) < least {
		t.Fatalf("%d promises in %s: does this test still read them?", len(promised), name)
	}
	now = of(read(t, name))
	return promised.broken(now), now
}

func TestHTTPKeepsWhatItPromises(t *testing.T) {
	keeps(t, "openapi/openapi.yaml", 1000, func(text string) promises { return httpIn(t, text) })
}

func httpIn(t *testing.T, text string) promises {
	t.Helper()
	found, err := httpOf(text)
	if err != nil {
		t.Fatalf("reading the document of OpenAPI: %v", err)
	}
	return found
}

func TestCommandsKeepTheirFlags(t *testing.T) {
	const list = "cmd/coatcheck/internal/cli/testdata/flags.txt"
	gone, now := broken(t, list, 500, flagsOf)
	wantAnnounced(t, fold(gone, now))
}

func TestFlagsThatWentTogetherAreOneLine(t *testing.T) {
	before := flagsOf("coatcheck a --x --z\ncoatcheck b --x --y\ncoatcheck c --y --z\n")
	now := flagsOf("coatcheck a\ncoatcheck b\ncoatcheck d --y\ncoatcheck e --z\n")
	got, want := fold(before.broken(now), now), []string{"--x", "coatcheck a --z", "coatcheck b --y", "coatcheck c"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestAnOperationThatWentIsOneLine(t *testing.T) {
	before := promises{"GET /a": true, "GET /a: 200": true, "GET /a: 200 next": true, "GET /b": true, "GET /b: 200 next": true}
	got, want := before.broken(promises{"GET /b": true}), []string{"GET /a", "GET /b: 200 next"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestMetricsKeepTheirNames(t *testing.T) { keeps(t, "docs/metrics.md", 50, metricsOf) }

func TestKeysKeepTheirNames(t *testing.T) { keeps(t, "docs/keys.md", 20, keysOf) }

func TestGoPackagesKeepWhatTheyExport(t *testing.T) {
	tree, err := last(t).tree(t.Context())
	if err != nil {
		t.Fatalf("the tree of the last release: %v", err)
	}
	before, err := load(t.Context(), tree, modules)
	if err != nil {
		t.Fatalf("the Go packages of the last release: %v", err)
	}
	now, err := load(t.Context(), root, modules)
	if err != nil {
		t.Fatalf("the Go packages of today: %v", err)
	}
	if len(before) < 20 {
		t.Fatalf("%d packages of the last release were read", len(before))
	}
	wantAnnounced(t, brokenGo(before, now))
}

// A user of the promised packages never has to import another of this repository.
func TestSignaturesHaveOnlyPromisedTypes(t *testing.T) {
	now, err := load(t.Context(), root, modules)
	if err != nil {
		t.Fatalf("the Go packages of today: %v", err)
	}
	for _, found := range unpromised(now) {
		t.Errorf("%s is of a package that docs/stability.md does not promise", found)
	}
}

func TestTypesThatAreNotPromisedAreFound(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26\n",
		"lock/a.go": `package lock

import "` + module + `/api"

type Named = api.Named

type T struct {
	Fine  []Named
	Wrong map[string]*api.Other
	own   api.Other
}

func (T) Wrong2(func(api.Other)) {}

func Fine(api.Named) error { return nil }
`,
		"api/b.go": "package api\n\ntype Named struct{ Part Part }\n\ntype Part int\n\ntype Other struct{}\n",
	})
	found, err := load(t.Context(), tree, map[string][]string{".": {"lock"}})
	if err != nil {
		t.Fatalf("the packages: %v", err)
	}
	if got, want := unpromised(found), []string{"lock.Named: api.Part", "lock.T: api.Other"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// What a change takes away is found, and what it adds is none of it.
func TestWhatIsTakenAwayIsFound(t *testing.T) {
	http := func(text string) promises { return httpIn(t, text) }
	const document = `
paths:
  /a/{id}:
    parameters: [{$ref: "#/components/parameters/By"}]
    get: {operationId: getA, responses: {"200": {content: {application/json: {schema: {$ref: "#/components/schemas/A"}}}}}}
    post:
      requestBody: {content: {application/json: {schema: {properties: {mode: {type: string, enum: [x, y]}, n: {type: integer}}}}}}
      responses: {"204": {headers: {Location: {}}}, "409": {}}
components:
  parameters: {By: {name: by, in: query, schema: {type: integer}}}
  schemas:
    A: {type: object, required: [value], properties: {value: {type: integer}, list: {type: array, items: {properties: {key: {type: string}}}}}}
    ProblemCode: {enum: [not-found, lock-held]}
`
	for _, row := range []struct {
		what, before, old, changed, gone string
		of                               func(string) promises
	}{
		{"method", document, "    get: {", "    put: {", "GET /a/{id}", http},
		{"path", document, "/a/{id}:", "/b/{id}:", "GET /a/{id}", http},
		{"parameter", document, "name: by", "name: n", "GET /a/{id}: query by", http},
		{"parameter that has to be there", document, "in: query,", "in: query, required: true,", "GET /a/{id}: query by may be left out", http},
		{"kind of a parameter", document, "in: query, schema: {type: integer}", "in: query, schema: {type: string}", "GET /a/{id}: query by is integer", http},
		{"field of a request", document, ", n: {type: integer}", "", "POST /a/{id}: body n", http},
		{"field of a request that has to be there", document, "schema: {properties: {mode", "schema: {required: [mode], properties: {mode", "POST /a/{id}: body mode may be left out", http},
		{"word of a request", document, "[x, y]", "[x]", "POST /a/{id}: body mode may be y", http},
		{"field of an answer", document, "value: {type: integer}", "amount: {type: integer}", "GET /a/{id}: 200 value", http},
		{"field of an answer that may be missing", document, "required: [value], ", "", "GET /a/{id}: 200 value is always there", http},
		{"field of an element", document, "key: {type: string}", "name: {type: string}", "GET /a/{id}: 200 list [] key", http},
		{"kind of a field", document, "value: {type: integer}", "value: {type: string}", "GET /a/{id}: 200 value is integer", http},
		{"status", document, `"409"`, `"410"`, "POST /a/{id}: 409", http},
		{"header of an answer", document, "{Location: {}}", "{}", "POST /a/{id}: 204 header Location", http},
		{"name of an operation", document, "operationId: getA", "operationId: readA", "GET /a/{id}: operationId getA", http},
		{"name of a schema", document, "    ProblemCode:", "    Code:", "schema ProblemCode", http},
		{"problem", document, ", lock-held", "", "problem lock-held", http},
		{"more of all", document, "[not-found", "[new", "problem not-found", http},

		{"command", "coatcheck incr --by\ncoatcheck lock run --ttl\n", "coatcheck incr", "coatcheck add", "coatcheck incr", flagsOf},
		{"flag", "coatcheck incr --by --limit\n", " --by", "", "coatcheck incr --by", flagsOf},
		{"metric", "| `coatcheck_a_total` | counter | kind | x |\n", "coatcheck_a", "coatcheck_b", "coatcheck_a_total counter", metricsOf},
		{"kind of a metric", "| `coatcheck_a_total` | counter | kind | x |\n", "| counter", "| gauge", "coatcheck_a_total counter", metricsOf},
		{"label", "| `coatcheck_a_total` | counter | kind, by | x |\n", "kind, by", "by", "coatcheck_a_total label kind", metricsOf},
		{"key", "| `lock:{<name>}` | string | x |\n", "lock:", "locks:", "`lock:{<name>}`", keysOf},
	} {
		before := row.of(row.before)
		if !strings.Contains(row.before, row.old) {
			t.Fatalf("%s: nothing is changed", row.what)
		}
		gone := before.broken(row.of(strings.Replace(row.before, row.old, row.changed, 1)))
		if !slices.Contains(gone, row.gone) {
			t.Errorf("%s: found %q, want %s", row.what, gone, row.gone)
		}
		if more := before.broken(row.of(row.before + "\n")); len(more) > 0 {
			t.Errorf("%s: no change has broken %q", row.what, more)
		}
	}
}

func TestWhatIsAddedBreaksNothing(t *testing.T) {
	const before, now = "coatcheck incr --by\n", "coatcheck incr --at --by\ncoatcheck limit --rate\n"
	if gone := flagsOf(before).broken(flagsOf(now)); len(gone) > 0 {
		t.Errorf("found %q", gone)
	}
}

// Exports that are gone or are others, and a method that an interface has more, are found.
func TestWhatAPackageNoLongerExportsIsFound(t *testing.T) {
	before := packageOf(t, "package a\n\ntype T struct{ A int }\nfunc (T) M() {}\ntype I interface{ M() }\nfunc F(int) {}\nfunc G() {}\nconst C = 1\n")
	now := packageOf(t, "package a\n\ntype T struct{ A, B int }\ntype I interface{ M(); N() }\nfunc F(string) {}\nfunc H() {}\nconst C = 1\n")
	one := map[string][]string{".": {""}}
	were, err := load(t.Context(), before, one)
	if err != nil {
		t.Fatalf("the package before: %v", err)
	}
	are, err := load(t.Context(), now, one)
	if err != nil {
		t.Fatalf("the package now: %v", err)
	}
	got := brokenGo(were, are)
	slices.Sort(got)
	want := []string{
		"example.com/a: F: changed from func(int) to func(string)", "example.com/a: G: removed", "example.com/a: I.N: added",
		"example.com/a: T.M: removed", "example.com/a: T: no longer implements I",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if gone := brokenGo(were, nil); !slices.Equal(gone, []string{"example.com/a: package removed"}) {
		t.Errorf("without the package: %q", gone)
	}
}

func packageOf(t *testing.T, text string) (folder string) {
	t.Helper()
	return treeOf(t, map[string]string{"a.go": text, "go.mod": "module example.com/a\n\ngo 1.26\n"})
}

func treeOf(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o750); err != nil {
			t.Fatalf("making the folder of %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatalf("writing %s: %v", name, err)
		}
	}
	return folder
}

// Only what stands above the last release, after the word, in backticks, is announced.
func TestChangesThatAreAnnouncedMayBreak(t *testing.T) {
	const changelog = "# Changelog\n\n## 2.0.0\n\n- **Breaking** `GET /a: query by`, and\n  `lock: Token.Value:\n  removed`: others.\n- `coatcheck incr --by` is faster.\n\n## 1.0.0\n\n- **Breaking** `problem x`.\n"
	broken := []string{"GET /a: query by", "coatcheck incr --by", "lock: Token.Value: removed", "problem x"}
	got := released{version: "1.0.0"}.unannounced(broken, changelog)
	if want := []string{"coatcheck incr --by", "problem x"}; !slices.Equal(got, want) {
		t.Errorf("not announced are %q, want %q", got, want)
	}
}

// Every package that another module can import is promised, or the page says that it is not.
func TestPageNamesEveryPackage(t *testing.T) {
	page := read(t, "docs/stability.md")
	promised, others, _ := strings.Cut(page, "## What is not")
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if ne .Name \"main\"}}{{.ImportPath}}{{end}}", "./...")
	list.Dir = root
	said, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(said)) {
		name := strings.TrimPrefix(path, module+"/")
		if path == module || strings.Contains("/"+name+"/", "/internal/") {
			continue
		}
		where := others
		if slices.Contains(modules["."], name) {
			where, name = promised, name[strings.LastIndex(name, "/")+1:]
		} else {
			name, _, _ = strings.Cut(name, "/")
		}
		if !strings.Contains(where, "`"+name+"`") {
			t.Errorf("docs/stability.md does not have package %s where it belongs", path)
		}
	}
}
