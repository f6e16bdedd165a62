package proctest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Children lists the processes that a process has started and that still run. The id of one that
// ends may be another's soon, unless its parent stands still, or is this process and does not wait.
func Children(parent int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if state, its, ok := status(pid); err == nil && ok && its == parent && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Ended reports whether a process runs no more. Its entry may be left.
func Ended(pid int) bool {
	state, _, ok := status(pid)
	return !ok || slices.Contains([]string{"Z", "X"}, state)
}

// status reads a process's state and parent, which come after its name in parentheses.
func status(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if err != nil || len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return string(fields[0]), parent, err == nil
}
