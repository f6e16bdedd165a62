package embedded

import (
	"os"
	"strings"
	"syscall"
)

// bootID names the time since the machine was started, "" if it is not known. While it lasts, the
// system has all that a process wrote, however that process ended.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// inode is the number by which the file system knows a file, 0 if it tells none. A copy has
// another.
func inode(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
