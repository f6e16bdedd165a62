package embedded

import (
	"os"
	"strings"
	"syscall"
)

// bootID identifies the machine's current boot; "" = unknown. Until the next boot the system has
// all that a process wrote, however that process ended.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// inode is a file's number in its file system, 0 if there is none. A copy has another.
func inode(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
