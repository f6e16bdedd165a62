//go:build check

package ids

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/snowflake"
)

// findings are what the files of all processes say.
type findings struct {
	ids     int
	files   int
	twice   []snowflake.ID // ids that are there more than once
	falling []string       // places where a file's ids do not rise
	workers map[int]int    // ids by worker id
}

// check reads the files of a folder. What a killed process has not written whole is not an id.
func check(t testing.TB, folder string) findings {
	t.Helper()
	f := findings{workers: map[int]int{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.ids"))
	if err != nil {
		t.Fatal(err)
	}
	var all []snowflake.ID
	for _, file := range files {
		ids := read(t, file)
		for i := 1; i < len(ids); i++ {
			if ids[i] <= ids[i-1] {
				f.falling = append(f.falling, fmt.Sprintf("%s: %d after %d", filepath.Base(file), ids[i], ids[i-1]))
			}
		}
		all = append(all, ids...)
	}
	f.ids, f.files = len(all), len(files)
	slices.Sort(all)
	_, layout := shape()
	for i, id := range all {
		if i > 0 && id == all[i-1] {
			f.twice = append(f.twice, id)
		}
		f.workers[int(id>>layout.Sequence)&(1<<layout.Worker-1)]++
	}
	return f
}

func read(t testing.TB, file string) []snowflake.ID {
	t.Helper()
	bytes, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]snowflake.ID, len(bytes)/8)
	for i := range ids {
		ids[i] = snowflake.ID(binary.BigEndian.Uint64(bytes[8*i:]))
	}
	return ids
}

func (f findings) String() string {
	return fmt.Sprintf("%d ids of %d processes with %d worker ids: %d twice, %d out of order", f.ids, f.files, len(f.workers), len(f.twice), len(f.falling))
}
