//go:build check

package ids

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/snowflake"
)

// findings are what the files of all processes say.
type findings struct {
	ids     int
	files   int
	twice   chaostest.Finding // ids that are there more than once
	falling chaostest.Finding // places where a file's ids do not rise
	workers map[int]int       // ids by worker id
	stamped map[string]int64  // ids, by what was broken at their time
}

// check reads the files of a folder. What a killed process has not written whole is not an id.
func check(t testing.TB, folder string, stages chaostest.Stages) findings {
	t.Helper()
	f := findings{workers: map[int]int{}, stamped: map[string]int64{}}
	var all []snowflake.ID
	files := chaostest.ReadRecords(t, folder, 1, func(n []int64) snowflake.ID { return snowflake.ID(n[0]) })
	for file, ids := range files {
		for i := 1; i < len(ids); i++ {
			if ids[i] <= ids[i-1] {
				f.falling.Addf(1, "", "%s: %d after %d", file, ids[i], ids[i-1])
			}
		}
		all = append(all, ids...)
	}
	f.ids, f.files = len(all), len(files)
	_, layout := shape()
	during := func(id snowflake.ID) string { return stages.At(int64(id) >> (layout.Worker + layout.Sequence)) }
	chaostest.Twice(all, chaostest.Itself, func(_, id snowflake.ID) { f.twice.Addf(1, during(id), "%d", id) })
	for _, id := range all {
		f.stamped[during(id)]++
		f.workers[int(id>>layout.Sequence)&(1<<layout.Worker-1)]++
	}
	return f
}

func (f findings) String() string {
	return fmt.Sprintf("%d ids of %d processes with %d worker ids: %d twice, %d out of order", f.ids, f.files, len(f.workers), f.twice.N, f.falling.N)
}

// rows are what was found during each kind of fault.
func (f findings) rows(role string, stages chaostest.Stages) []evidence.Row {
	who := map[string]string{"leased": evidence.Ours, "masked": "`INCR & mask` with a TTL"}[role]
	row := evidence.Row{Suite: "ids", Promise: evidence.WorkerIDs, Who: who, Peer: role == "masked", Layer: evidence.Processes}
	return stages.Rows(row, f.stamped, f.twice.During)
}
