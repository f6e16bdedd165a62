package proctest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Packages returns a copy of a folder with the packages that its package-lock.json names, which npm
// fetches once and compares with its sums. It is kept beside the caches of Go, for all tests whose
// folder has the same files: they must not write to it.
func Packages(t testing.TB, source string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err) // names the cause
	}
	sum := sha256.New()
	files, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err) // names the folder
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(source, file.Name()))
		if err != nil {
			t.Fatal(err) // names the file
		}
		_, _ = io.WriteString(sum, file.Name()+"\x00"+string(text)+"\x00")
	}
	kept := filepath.Join(cache, "coatcheck-tests", filepath.Base(source)+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	fresh := filepath.Join(t.TempDir(), filepath.Base(source))
	if err := os.CopyFS(fresh, os.DirFS(source)); err != nil {
		t.Fatal(err) // names the file
	}
	command := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
	command.Dir = fresh
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v: %s", err, output)
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		t.Fatal(err) // names the folder
	}
	// another process was faster, or it is another disk
	if err := os.Rename(fresh, kept); err != nil {
		return fresh
	}
	return kept
}
