//go:build unix

package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads the clock by which a command and its guards judge the end of a window: it is the
// same in every process of the machine.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(bootClock, &now); err != nil {
		panic(err) // the clock is part of the system
	}
	return time.Duration(now.Nano())
}

// Window is the end of a lease's window, by the server's clock since 1970 and by this machine's
// boot clock. The second is no later than the first.
type Window struct {
	Server time.Time
	Boot   time.Duration
}

// origin is the server's time at zero of the boot clock, as the file's two lines give it.
func (w Window) origin() time.Time {
	return time.UnixMilli(w.Server.UnixMilli() - w.Boot.Milliseconds())
}

// windowFile tells the end of a window to a command, which finds it in WORKER_NOT_AFTER_FILE or
// LOCK_NOT_AFTER_FILE: two lines of milliseconds, by the server's clock and by the boot clock. The
// file has a folder of its own. "" = none could be written, and the variable is empty. The guard
// needs no file.
type windowFile string

const windowName = "not_after"

func newWindowFile(w Window) (windowFile, error) {
	folder, err := os.MkdirTemp("", "coatcheck-")
	if err != nil {
		return "", err
	}
	file := windowFile(filepath.Join(folder, windowName))
	if err := file.write(w); err != nil {
		file.remove()
		return "", err
	}
	return file, nil
}

// write replaces the end: a reader sees the old or the new one.
func (f windowFile) write(w Window) error {
	text := fmt.Sprintf("%d\n%d\n", w.Server.UnixMilli(), w.Boot.Milliseconds())
	if err := os.WriteFile(string(f)+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(string(f)+".new", string(f))
}

// remove takes the file and its folder away, and nothing else that may be there.
func (f windowFile) remove() {
	if f == "" {
		return
	}
	for _, name := range []string{string(f), string(f) + ".new", filepath.Dir(string(f))} {
		_ = os.Remove(name) // another guard may have done it
	}
}
