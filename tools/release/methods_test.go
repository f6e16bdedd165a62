package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The linker leaves out methods that are never called, unless something that it cannot see through
// looks methods up by name: text/template does, and so does what imports it. It made a third of the
// binary. The program is built as by `go install`, with symbols and without a tag.
func TestProgramIsSmallAndHasNoMethodThatIsNeverCalled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "coatcheck")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/coatcheck")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, text)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	if err != nil {
		t.Fatalf("go tool nm: %v", err)
	}
	const itself, lookup = "cmd/coatcheck/internal/cli.Main", "text/template.(*state).evalField"
	if !strings.Contains(string(symbols), itself) {
		t.Fatalf("the symbols lack %s: they are not those of the program", itself)
	}
	if strings.Contains(string(symbols), lookup) {
		t.Errorf("the program links %s: find what executes a template (go build -ldflags=-dumpdep)", lookup)
	}
	parts, err := elf.Open(binary)
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	defer parts.Close()
	var size uint64 // of what is published: symbols are left out of it
	for _, part := range parts.Progs {
		if part.Type == elf.PT_LOAD {
			size += part.Filesz
		}
	}
	installed, err := os.Stat(binary)
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	for _, row := range []struct {
		name    string
		n, most uint64
	}{
		{"published", size, 25_000_000},
		{"installed, with symbols", uint64(installed.Size()), 35_500_000},
	} {
		if row.n > row.most {
			t.Errorf("the program as it is %s has %d bytes, want %d at most: go tool nm -size -sort size lists what is in it", row.name, row.n, row.most)
		}
	}
}
