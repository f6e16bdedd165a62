package evidence

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What several write at once is read back whole, and what is not a line is told.
func TestLinesAreReadBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counted.jsonl")
	row := Row{Suite: "s", Promise: Locks, Who: Ours, Layer: Processes, Fault: "f", Faults: 1, Operations: 2, Violations: 3, Seed: 1 << 63, Shared: true}
	const writers = 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			expect.Error(t, "Append", Append(name, Line{Row: &row}, Line{Step: &Step{Name: "n", Seconds: 4, Failed: true}}), nil)
		})
	}
	all.Wait()
	file, err := os.Open(name)
	expect.NoError(t, "os.Open", err)
	defer file.Close()
	lines, err := Read(file)
	if err != nil || len(lines) != 2*writers {
		t.Fatalf("got %d lines and error %v, want %d", len(lines), err, 2*writers)
	}
	for _, line := range lines {
		if line.Row != nil && !reflect.DeepEqual(*line.Row, row) {
			t.Errorf("got %+v, want %+v", *line.Row, row)
		}
	}
	if _, err := Read(strings.NewReader("{}\n{\n")); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("got error %v, want one about line 2", err)
	}
}
