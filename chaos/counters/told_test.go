//go:build check

package counters

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// told is what one call was told: the caller owns first to value. Times are those of moment.
type told struct {
	counter                       counterID
	first, value, begun, returned int64
}

const toldBytes = 5 * 8

// moment is now by the clock of the machine that runs monotonically, in nanoseconds. It is one for
// all processes.
func moment() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// write appends to a file in one call, so that a process that is killed leaves whole ones.
func write(file *os.File, one told) {
	bytes := make([]byte, 0, toldBytes)
	for _, n := range []int64{int64(one.counter), one.first, one.value, one.begun, one.returned} {
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(n))
	}
	if _, err := file.Write(bytes); err != nil {
		panic(err) // a history with holes proves nothing
	}
}

// read reads what a process was told. What it has not written whole is left out: no caller has used
// it.
func read(t testing.TB, file string) []told {
	t.Helper()
	bytes, err := os.ReadFile(file)
	expect.NoError(t, "os.ReadFile", err)
	all := make([]told, len(bytes)/toldBytes)
	for i := range all {
		n := func(field int) int64 { return int64(binary.BigEndian.Uint64(bytes[i*toldBytes+field*8:])) }
		all[i] = told{counterID(n(0)), n(1), n(2), n(3), n(4)}
	}
	return all
}
