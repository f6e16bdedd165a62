//go:build !unix

package embedded

import (
	"errors"
	"os"
)

func flock(*os.File) error { return errors.New("a data directory needs a Unix system, to lock it") }

func funlock(*os.File) error { return nil }
