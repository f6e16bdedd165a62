package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// reproduce builds the repository at root twice, as `make build` does, from copies in two folders
// and with a cache each that is empty at first, and compares the binaries and images of them.
func reproduce(ctx context.Context, root string, out io.Writer) (err error) {
	work, err := os.MkdirTemp("", "coatcheck-reproduce-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	at, err := commitTime(ctx, root)
	if err != nil {
		return err
	}
	var binaries, images [2][]byte
	for i, name := range []string{"one", "another/and-deeper"} {
		began := time.Now()
		folder := filepath.Join(work, name)
		if err := copyTree(ctx, root, folder); err != nil {
			return err
		}
		if binaries[i], err = build(ctx, folder, filepath.Join(work, fmt.Sprint("cache", i))); err != nil {
			return err
		}
		files := []packed{{"coatcheck", 0o755, binaries[i]}}
		if images[i], err = imaged(linux, "reproduced", &debug.BuildInfo{}, files, at); err != nil {
			return err
		}
		fmt.Fprintf(out, "%x  built in %v\n", sha256.Sum256(binaries[i]), time.Since(began).Round(time.Second))
		fmt.Fprintf(out, "%x  its image\n", sha256.Sum256(images[i]))
	}
	return errors.Join(compare(binaries, work), compare(images, work))
}

// compare reports whether two binaries are the same and hold nothing of their build's folder.
func compare(binaries [2][]byte, folder string) error {
	if bytes.Contains(binaries[0], []byte(folder)) {
		return fmt.Errorf("the binary holds the path of the folder that it was built in: build it with -trimpath")
	}
	if !bytes.Equal(binaries[0], binaries[1]) {
		return errors.New("two builds of the same source differ: keep both with -x, and compare them with go tool objdump")
	}
	return nil
}

// copyTree copies the files that git knows, and new ones that it does not ignore, as they are now.
func copyTree(ctx context.Context, root, folder string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) { // removed, and git does not know yet
			continue
		}
		to := filepath.Join(folder, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil { //nolint:gosec // a name that git lists, in a folder that is made here
			return err
		}
	}
	return nil
}

func build(ctx context.Context, folder, cache string) ([]byte, error) {
	binary := filepath.Join(folder, "bin", "coatcheck")
	args := append(published("-buildvcs=false"), "-o", binary, "./cmd/coatcheck")
	compile := exec.CommandContext(ctx, "go", args...) //nolint:gosec // a file in that folder
	compile.Dir, compile.Env = folder, append(os.Environ(), "CGO_ENABLED=0", "GOCACHE="+cache)
	if said, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, said)
	}
	return os.ReadFile(binary)
}
