package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// format is the version of the files that this code reads and writes.
const format = 2

const (
	snapshotName = "snapshot.resp"
	stateName    = "state.json"
	lockName     = "lock"
)

// state is the content of state.json.
type state struct {
	Format      int       `json:"format"`
	Incarnation string    `json:"incarnation"`
	Clean       bool      `json:"clean"` // the store was stopped, and the snapshot holds everything
	Last        time.Time `json:"last"`  // when this was written, by the wall clock
	Boot        string    `json:"boot"`  // the machine's, as bootID tells it
	Inode       uint64    `json:"inode"` // of the file that says this
}

// complete reports whether the directory certainly has all that was ever answered: the store was
// stopped, or its process ended while the machine went on. It is not certain if the machine has
// been restarted since, or the directory is an earlier copy.
func (d *directory) complete(st state) bool {
	if st.Clean {
		return true
	}
	info, err := os.Stat(d.file(stateName))
	return err == nil && st.Boot != "" && st.Boot == bootID() && st.Inode != 0 && st.Inode == inode(info)
}

// directory is a data directory that this process has locked.
type directory struct {
	path string
	lock *os.File
}

func lockDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &directory{path, lock}, nil
}

// unlock releases the directory. It ignores errors: the lock ends with the process at the latest.
// It releases the lock before it closes the file: a process that is just being started may have a
// copy of the file for a moment, and with it the lock.
func (d *directory) unlock() {
	_ = funlock(d.lock)
	_ = d.lock.Close()
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

func logName(number int) string { return fmt.Sprintf("log-%d.resp", number) }

func (d *directory) logs() ([]int, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, entry := range entries {
		text := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), "log-"), ".resp")
		if n, err := strconv.Atoi(text); err == nil && entry.Name() == logName(n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// newLog begins a log. Its head is on the disk before the rest. After an error there is no such
// log: one after the log that goes on would make a torn end of that look like damage.
func (d *directory) newLog(number int) (log *os.File, secret string, err error) {
	log, err = os.OpenFile(d.file(logName(number)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, "", err
	}
	secret = newIncarnation()[:len(zeroSecret)]
	_, err = log.Write(logHeadOf(secret))
	if err == nil {
		err = errors.Join(log.Sync(), d.sync())
	}
	if err != nil {
		return nil, "", errors.Join(err, log.Close(), os.Remove(log.Name()))
	}
	return log, secret, nil
}

// removeLogs deletes the logs up to a number. The oldest goes first, so that those that a crash
// leaves are the end of the history.
func (d *directory) removeLogs(last int) error {
	numbers, err := d.logs()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n > last {
			break
		}
		if err := os.Remove(d.file(logName(n))); err != nil {
			return err
		}
	}
	return d.sync()
}

// readState reads state.json. found is false if there is none.
func (d *directory) readState() (st state, found bool, err error) {
	text, err := os.ReadFile(d.file(stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, err
	}
	err = json.Unmarshal(text, &st)
	if err == nil && (st.Format < 1 || st.Format <= format && len(st.Incarnation) != 40) {
		err = errors.New("a field is missing")
	}
	if err != nil {
		return state{}, true, fmt.Errorf("%w: %s: %w; restore it from a backup, or delete it to start as after a crash", ErrCorrupt, stateName, err)
	}
	if st.Format > format {
		return state{}, true, fmt.Errorf("%s has format %d, and this version reads up to %d: start a newer coatcheck", stateName, st.Format, format)
	}
	return st, true, nil
}

func (d *directory) writeState(st state) error {
	file, err := os.OpenFile(d.file(stateName+".new"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(st.writeTo(file), file.Close()); err != nil {
		return err
	}
	return d.rename(stateName+".new", stateName)
}

func (st state) writeTo(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	st.Format, st.Last, st.Boot, st.Inode = format, time.Now().UTC().Round(0), bootID(), inode(info)
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Sync())
}

// rename replaces a file by one that is on the disk.
func (d *directory) rename(from, to string) error {
	if err := os.Rename(d.file(from), d.file(to)); err != nil {
		return err
	}
	return d.sync()
}

func (d *directory) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
