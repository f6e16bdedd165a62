//go:build check

package sqltest

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// serverIn reads which process and folder a child's server has.
func serverIn(t *testing.T, out io.Reader) (pid int, dir string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			number, dir, _ := strings.Cut(rest, " ")
			pid, err := strconv.Atoi(number)
			expect.NoError(t, "the process id that was printed", err)
			return pid, dir
		}
	}
	t.Fatal("the child has told of no server")
	return 0, ""
}

// awaitEnd returns when a process runs no more.
func awaitEnd(pid int) {
	for !ended(pid) {
		time.Sleep(pollEvery)
	}
}
