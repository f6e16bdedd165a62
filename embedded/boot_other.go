//go:build !linux

package embedded

import "os"

func bootID() string { return "" }

func inode(os.FileInfo) uint64 { return 0 }
