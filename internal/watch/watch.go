// Package watch follows files while a process runs: files of keys, of routes, of certificates. It
// reads them every so often, and takes new content that is the same at two looks, so that it takes
// no half-written file, and no certificate with the key of the one before it.
package watch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Every calls look every so often until stop is called, which ends the look under way by its
// context and waits for it. stop may be called again.
func Every(interval time.Duration, look func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			if ctx.Err() != nil {
				return
			}
			look(ctx)
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}

// Seen is the state of a file, or files that belong together. One goroutine at a time uses it.
type Seen struct {
	last  string // what the last look found
	tried string // what was taken last, well or badly
}

// Look records a look's result: the version of the content, or an error. It reports whether to take
// that: it is the same at two looks, and was not taken last. So an error is reported once.
func (s *Seen) Look(version string, err error) (isNew bool) {
	found := nameOf(version, err)
	isNew = found == s.last && found != s.tried
	if s.last = found; isNew {
		s.tried = found
	}
	return isNew
}

// Take records that a result is taken at once.
func (s *Seen) Take(version string, err error) { s.tried = nameOf(version, err) }

func nameOf(version string, err error) string {
	if version == "" && err != nil {
		return err.Error()
	}
	return version
}

// Read reads a file of up to most bytes, and names its content, as [Version] does.
func Read(path string, most int64) (text []byte, version string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	text, err = io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: it may have up to %d bytes", path, most)
	}
	if err != nil {
		return nil, "", err
	}
	return text, Version(text), nil
}

// Version names a content: twelve hex digits of its SHA-256.
func Version(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// IsExposed reports whether every user of this machine may read a file.
func IsExposed(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.Mode().Perm()&0o004 != 0
}
