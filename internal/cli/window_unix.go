//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads the clock by which a command and its guards judge the end of a window: it is the
// same in every process of the machine.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(bootClock, &now); err != nil {
		panic(err) // the clock is part of the system
	}
	return time.Duration(now.Nano())
}

// window is the end of a lease's window, as the file tells it that a command finds in
// WORKER_NOT_AFTER_FILE: two lines of milliseconds, of the server's clock since 1970 and of this
// machine's boot clock. The second is no later than the first.
type window struct {
	server time.Time
	boot   time.Duration
}

// windowFile is that file, in a folder of its own.
type windowFile string

const windowName = "not_after"

func newWindowFile() (windowFile, error) {
	folder, err := os.MkdirTemp("", "coatcheck-")
	return windowFile(filepath.Join(folder, windowName)), err
}

// write puts another end in the place of the last: a reader sees the one or the other.
func (f windowFile) write(w window) error {
	text := fmt.Sprintf("%d\n%d\n", w.server.UnixMilli(), w.boot.Milliseconds())
	if err := os.WriteFile(string(f)+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(string(f)+".new", string(f))
}

func (f windowFile) read() (window, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return window{}, err
	}
	var numbers [2]int64
	lines := strings.Split(string(text), "\n")
	for i := range numbers {
		if len(lines) != 3 {
			return window{}, fmt.Errorf("%s: %d lines", f, len(lines)-1)
		}
		if numbers[i], err = strconv.ParseInt(lines[i], 10, 64); err != nil {
			return window{}, fmt.Errorf("%s: %w", f, err)
		}
	}
	return window{time.UnixMilli(numbers[0]).UTC(), time.Duration(numbers[1]) * time.Millisecond}, nil
}

// remove takes the file and its folder away, and nothing else that may be there.
func (f windowFile) remove() {
	for _, name := range []string{string(f), string(f) + ".new", filepath.Dir(string(f))} {
		_ = os.Remove(name) // another guard may have done it
	}
}
