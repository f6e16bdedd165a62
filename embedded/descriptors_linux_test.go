package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
)

// oneFileMore lets this process open one more file, and no second one, until it is called again.
func oneFileMore(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	expectNone(t, "reading the limit of open files", syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	next, err := os.Open(os.DevNull)
	expectNone(t, "opening a file", err)
	free := next.Fd()
	expectNone(t, "closing it", next.Close())
	few := syscall.Rlimit{Cur: uint64(free) + 1, Max: before.Max}
	expectNone(t, "setting the limit of open files", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	return func() {
		expectNone(t, "setting it back", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	}
}

// A log that could be made, and whose begin could not be brought to the disk, is not there: the
// next compaction begins it anew, and the log that goes on is the last when the store is opened.
func TestLogThatCannotBeBegunLeavesNothing(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	want(t, c, "1", "INCR", "n")
	goesOn := logName(s.journal.number)
	restore := oneFileMore(t)
	_, err := s.journal.rotate()
	restore()
	expect.Error(t, "beginning a log without a file for its directory", err, syscall.EMFILE)
	torn := leave(t, s.journal.dir.path)
	_, err = s.journal.rotate()
	expect.Error(t, "beginning it again", err, nil)

	log, err := os.OpenFile(filepath.Join(torn, goesOn), os.O_APPEND|os.O_WRONLY, 0)
	expectNone(t, "opening the log that goes on", err)
	_, err = log.Write(appendCommand(nil, "SET", "n", "2")[:20]) // of a group that a crash cut off
	expectNone(t, "writing to it", errors.Join(err, log.Close()))
	want(t, client(t, open(t, Config{Dir: torn})), "1001", "GET", "n") // a copy: it jumps
}
