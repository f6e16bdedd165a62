//go:build check

package ids

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// findings are what the files of all processes say.
type findings struct {
	ids     int
	files   int
	twice   []snowflake.ID   // ids that are there more than once
	falling []string         // places where a file's ids do not rise
	workers map[int]int      // ids by worker id
	stamped map[string]int64 // ids, by what was broken at their time
	again   map[string]int64 // those that are there more than once, likewise
}

// stage is what is broken from a moment on.
type stage struct {
	from int64 // milliseconds since the epoch of ids
	name string
}

// at tells what was broken when an id was stamped.
func at(stages []stage, id snowflake.ID) string {
	_, layout := shape()
	moment := int64(id) >> (layout.Worker + layout.Sequence)
	for _, one := range slices.Backward(stages) {
		if moment >= one.from {
			return one.name
		}
	}
	return "the start"
}

// check reads the files of a folder. What a killed process has not written whole is not an id.
func check(t testing.TB, folder string, stages []stage) findings {
	t.Helper()
	f := findings{workers: map[int]int{}, stamped: map[string]int64{}, again: map[string]int64{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.ids"))
	expect.NoError(t, "filepath.Glob", err)
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
			f.again[at(stages, id)]++
		}
		f.stamped[at(stages, id)]++
		f.workers[int(id>>layout.Sequence)&(1<<layout.Worker-1)]++
	}
	return f
}

func read(t testing.TB, file string) []snowflake.ID {
	t.Helper()
	bytes, err := os.ReadFile(file)
	expect.NoError(t, "os.ReadFile", err)
	ids := make([]snowflake.ID, len(bytes)/8)
	for i := range ids {
		ids[i] = snowflake.ID(binary.BigEndian.Uint64(bytes[8*i:]))
	}
	return ids
}

func (f findings) String() string {
	return fmt.Sprintf("%d ids of %d processes with %d worker ids: %d twice, %d out of order", f.ids, f.files, len(f.workers), len(f.twice), len(f.falling))
}

// rows are what was found during each kind of fault.
func (f findings) rows(role string, stages []stage) (rows []evidence.Row) {
	faults := map[string]int64{}
	for _, one := range stages {
		faults[one.name]++
	}
	who := map[string]string{"leased": evidence.Ours, "masked": "`INCR & mask` with a TTL"}[role]
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		rows = append(rows, evidence.Row{
			Suite: "ids", Promise: evidence.WorkerIDs, Who: who, Peer: role == "masked", Layer: evidence.Processes, Fault: name,
			Faults: faults[name], Operations: f.stamped[name], Violations: f.again[name],
		})
	}
	return rows
}
