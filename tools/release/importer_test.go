package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that imports guards and locks has few modules in its go.sum: each is one that its
// owners have to judge.
func TestImporterHasFewModules(t *testing.T) {
	const most = 20
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatalf("the folder of the tree: %v", err)
	}
	folder := t.TempDir()
	require := "module example.com/a\n\ngo 1.26.0\n\nrequire github.com/coatcheck/coatcheck v0.0.0\n\nreplace github.com/coatcheck/coatcheck => " + tree + "\n"
	program := "package main\n\nimport (\n\t_ \"github.com/coatcheck/coatcheck/idempotency\"\n\t_ \"github.com/coatcheck/coatcheck/lock\"\n)\n\nfunc main() {}\n"
	err = errors.Join(os.WriteFile(filepath.Join(folder, "go.mod"), []byte(require), 0o600), os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600))
	if err != nil {
		t.Fatalf("writing the importer: %v", err)
	}
	tidy := exec.CommandContext(t.Context(), "go", "mod", "tidy")
	tidy.Dir = folder
	if said, err := tidy.CombinedOutput(); err != nil {
		t.Fatalf("go mod tidy: %v: %s", err, said)
	}
	sums, err := os.ReadFile(filepath.Join(folder, "go.sum"))
	if err != nil {
		t.Fatalf("reading the importer's go.sum: %v", err)
	}
	modules := map[string]bool{}
	for line := range strings.Lines(string(sums)) {
		modules[strings.Fields(line)[0]] = true
	}
	if len(modules) > most || !modules["github.com/redis/go-redis/v9"] {
		t.Errorf("%d modules, want %d at most, with go-redis: %v", len(modules), most, modules)
	}
}
