package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The copy runs, and replaces what was there.
func TestInstallCopiesAProgramThatRuns(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "coatcheck")
	expect.NoError(t, "write the file", os.WriteFile(file, []byte("old"), 0o600))
	install := exec.Command(built(t), "install", file)
	install.Env = append(os.Environ(), asProgram+"=1")
	if out, err := install.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("coatcheck install: %v, and it printed %q, want nothing", err, out)
	}
	version := exec.Command(file, "version")
	version.Env = append(os.Environ(), asProgram+"=1")
	if out, err := version.Output(); err != nil || !strings.HasPrefix(string(out), "coatcheck ") {
		t.Errorf("the copy says %q, %v", out, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("beside the copy there is something else: %v, %v", entries, err)
	}
}

func TestInstallThatFailsLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	if err := copyProgram(filepath.Join(folder, "nothing"), filepath.Join(folder, "coatcheck")); err == nil {
		t.Error("a program that is not there was copied")
	}
	expect.NoError(t, "make the folder", os.Mkdir(filepath.Join(folder, "taken"), 0o700))
	if err := copyProgram(os.Args[0], filepath.Join(folder, "taken")); err == nil || !strings.Contains(err.Error(), "name the file, in a folder") {
		t.Errorf("a folder in the place of a file: %v", err)
	}
	if err := copyProgram(os.Args[0], filepath.Join(folder, "missing", "coatcheck")); err == nil || !strings.Contains(err.Error(), "name the file, in a folder") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("something was left: %v, %v", entries, err)
	}
}
