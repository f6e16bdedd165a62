//go:build check

package snowflake_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// An id once had a time before its grant's window, about once in some hundred runs with many
// callers: the limit rose for all calls before the positions went to the clock, from where the
// grant before had ended. With that put back, walking every order finds it by itself.
func TestWalkingEveryOrderFindsAnIDOutsideOfItsWindow(t *testing.T) {
	source, err := filepath.Abs("draw.go")
	expect.NoError(t, "where draw.go is", err)
	text, err := os.ReadFile(source)
	expect.NoError(t, "reading draw.go", err)
	broken := string(text)
	for _, change := range []struct{ is, was string }{
		{"\tif old { // before the limit rises, so that no other call stamps the time since the last draw\n\t\tg.skip(p, g.begin(unit, t.spread))\n\t}\n", ""},
		{"\tif old {\n\t\tt.positions", "\tif old {\n\t\tg.skip(p, g.begin(unit, t.spread))\n\t\tt.positions"},
		{"max(g.floor, g.used+1, g.position(to.first))", "max(g.floor, g.used+1)"},
	} {
		if strings.Count(broken, change.is) != 1 {
			t.Fatalf("draw.go has no longer %q once: put the fault back in another way", change.is)
		}
		broken = strings.Replace(broken, change.is, change.was, 1)
	}
	folder := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		expect.NoError(t, "writing "+name, os.WriteFile(path, text, 0o600))
		return path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: write("draw.go", []byte(broken))}})
	expect.NoError(t, "the overlay", err)
	out, err := exec.CommandContext(t.Context(), "go", "test", "-tags=steps", "-vet=off", "-count=1", "-run", "TestWalkEveryOrder",
		"-overlay", write("overlay.json", overlay), ".").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "lies in no window of its worker id") {
		t.Errorf("walking every order with the fault: %v\n%.2000s\nwant an id that lies in no window", err, out)
	}
}
