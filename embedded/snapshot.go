package embedded

import (
	"bufio"
	"errors"
	"os"
	"slices"
)

// snapshotKeys is how many keys are read, and sealed as one group, at a time.
const snapshotKeys = 100

// snapshot writes a new snapshot and replaces the old one. It holds all of the logs up to a number,
// which the next start does not read any more: they may have keys that have gone since. Commands
// run between its groups: the new log, begun before, has their changes.
func (j *journal) snapshot(logs int) error {
	file, err := os.OpenFile(j.dir.file(snapshotName+".new"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, err := j.writeSnapshot(file, logs)
	if err == nil {
		err = j.flush() // what the snapshot may show of scripts that no log has yet
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := j.dir.rename(snapshotName+".new", snapshotName); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.snapshotSize = size
	return nil
}

// flush writes all that was noted. At start there is no log and nothing is noted.
func (j *journal) flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flushLocked()
}

func (j *journal) writeSnapshot(file *os.File, logs int) (size int64, err error) {
	out := bufio.NewWriterSize(file, 1<<20)
	for keys := range slices.Chunk(j.store.redis.Keys(), snapshotKeys) {
		group := j.images(keys)
		group = appendSeal(group, "", group)
		n, err := out.Write(group)
		size += int64(n)
		if err != nil {
			return size, err
		}
	}
	n, err := out.Write(appendEnd(nil, logs))
	return size + int64(n), errors.Join(err, out.Flush())
}

func (j *journal) images(keys []string) []byte {
	j.store.exec.Lock()
	defer j.store.exec.Unlock()
	var group []byte
	for _, key := range keys {
		group = j.store.appendImageLocked(group, key)
	}
	return group
}
