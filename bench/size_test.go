package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A build with an empty cache also builds the standard library, and that is part of it.
func TestColdBuildBeginsWithTheStandardLibrary(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module cold\n\ngo 1.26.0\n", "main.go": "package main\n\nimport \"sync\"\n\nfunc main() { new(sync.Mutex).Lock() }\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	library, all, err := buildCold(t.Context(), folder, ".")
	if err != nil || library <= 0 || all <= library {
		t.Errorf("got %v of %v, %v, want some time, and more for all", library, all, err)
	}
	if _, _, err := buildCold(t.Context(), folder, "./none"); err == nil {
		t.Error("a program that is not there was built")
	}
	var told table
	told.tellCold(library, all)
	for _, target := range targets {
		if got, err := target.read(&told); target.series == coldBuild && (err != nil || len(got) != 1) {
			t.Errorf("%s: got %v, %v, want what was measured", target.what, got, err)
		}
	}
}
