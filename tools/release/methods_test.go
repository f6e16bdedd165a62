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
// binary.
func TestPublishedProgramIsSmallAndHasNoMethodThatIsNeverCalled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "coatcheck")
	args := published("-buildvcs=false", "-o", binary, "./cmd/coatcheck")
	for i, arg := range args {
		if strings.HasPrefix(arg, "-ldflags") {
			args[i] = "-ldflags=-w" // with its symbols
		}
	}
	build := exec.CommandContext(t.Context(), "go", args...)
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
	// 25,000,000 until callers were known by their verified tokens (go-jose), and rate limits,
	// ULIDs, TypeIDs and operations by callers' own keys came: together half a megabyte more.
	const most = 26_000_000
	if size > most {
		t.Errorf("the program has %d bytes, want %d at most: go tool nm -size -sort size lists what is in it", size, most)
	}
}
