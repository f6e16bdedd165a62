//go:build check

package segments

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// record is what a process writes down: a range that it was given, or, with hi 0, the id lo that a
// client was told.
type record struct{ tag, lo, hi, delta int64 }

const recordBytes = 4 * 8

// write appends to a file in one call, so that a process that is killed leaves whole ones.
func write(file *os.File, one record) {
	bytes := make([]byte, 0, recordBytes)
	for _, n := range []int64{one.tag, one.lo, one.hi, one.delta} {
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(n))
	}
	if _, err := file.Write(bytes); err != nil {
		panic(err) // a history with holes proves nothing
	}
}

// read reads what a process wrote. What it has not written whole is left out.
func read(t testing.TB, file string) []record {
	t.Helper()
	bytes, err := os.ReadFile(file)
	expect.NoError(t, "os.ReadFile", err)
	all := make([]record, len(bytes)/recordBytes)
	for i := range all {
		n := func(field int) int64 { return int64(binary.BigEndian.Uint64(bytes[i*recordBytes+field*8:])) }
		all[i] = record{n(0), n(1), n(2), n(3)}
	}
	return all
}
