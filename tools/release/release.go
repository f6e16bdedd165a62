package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/version"
)

// targets are a release's archives. On Windows `lock run` and `worker run` refuse to start.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// packed is a file of an archive.
type packed struct {
	name string
	mode int64
	text []byte
}

// release builds the program for each target into a folder: an archive with the licences, its bill
// of materials, and for Linux a container image. SHA256SUMS has the sums of all. Names have the
// version of the tree. The same source makes the same bytes: times in archives and images are that
// of the last commit.
func release(ctx context.Context, root, folder string, targets []target, out io.Writer) error {
	at, err := commitTime(ctx, root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // what is published is for all to read
		return err
	}
	var beside []packed
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		beside = append(beside, packed{name, 0o644, text})
	}
	written := map[string][]byte{}
	for i, t := range targets {
		fmt.Fprintf(out, "%d of %d: %s\n", i+1, len(targets), t)
		if err := t.build(ctx, root, at, beside, written); err != nil {
			return err
		}
	}
	written["SHA256SUMS"] = sums(written)
	for name, text := range written {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil { //nolint:gosec // the same
			return err
		}
	}
	fmt.Fprintf(out, "%d files in %s\n", len(written), folder)
	return nil
}

// published returns the arguments of `go build` for what is published, as the Makefile and the
// Dockerfile have them.
func published(more ...string) []string {
	return append([]string{"build", "-trimpath", "-ldflags=-s -w"}, more...)
}

// build adds a target's archive, bill of materials and image to what is written.
func (t target) build(ctx context.Context, root string, at time.Time, beside []packed, written map[string][]byte) (err error) {
	work, err := os.MkdirTemp("", "coatcheck-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	program := "coatcheck"
	if t.os == "windows" {
		program += ".exe"
	}
	binary := filepath.Join(work, program)
	args := append(published("-buildvcs=auto"), "-o", binary, "./cmd/coatcheck")
	compile := exec.CommandContext(ctx, "go", args...) //nolint:gosec // a file in that folder
	compile.Dir, compile.Env = root, t.environment()
	if said, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w: %s", t, err, said)
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	var bill, licences bytes.Buffer
	if err := errors.Join(printBill(ctx, root, binary, &bill), printTexts(ctx, root, t, &licences)); err != nil {
		return err
	}
	name := fmt.Sprintf("coatcheck_%s_%s_%s", version.Version, t.os, t.arch)
	files := append([]packed{{program, 0o755, text}, {"licences.txt", 0o644, licences.Bytes()}}, beside...)
	written[name+".sbom.json"] = bill.Bytes()
	switch t.os {
	case "windows":
		written[name+".zip"], err = zipped(name, files, at)
		return err
	case "linux":
		// LICENSE is the first of what lies beside; no one reads the others in an image.
		if written[name+"_image.tar"], err = imaged(t, version.Version, info, files[:3], at); err != nil {
			return err
		}
	}
	written[name+".tar.gz"], err = tarred(name, files, at)
	return err
}

// commitTime is when the last commit was made, or what SOURCE_DATE_EPOCH says
// (https://reproducible-builds.org/specs/source-date-epoch).
func commitTime(ctx context.Context, root string) (time.Time, error) {
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		return time.Unix(seconds, 0).UTC(), err
	}
	show := exec.CommandContext(ctx, "git", "log", "-1", "--format=%cI")
	show.Dir = root
	said, err := show.Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("git log: %w", err)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(said)))
	return at.UTC(), err
}

func tarred(folder string, files []packed, at time.Time) ([]byte, error) {
	var all bytes.Buffer
	outer := gzip.NewWriter(&all)
	inner := tar.NewWriter(outer)
	var faults []error
	for _, file := range files {
		faults = append(faults, pack(inner, folder+"/"+file.name, file, at))
	}
	faults = append(faults, inner.Close(), outer.Close())
	return all.Bytes(), errors.Join(faults...)
}

// pack adds a file to an archive, as root's.
func pack(archive *tar.Writer, name string, file packed, at time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: file.mode, Size: int64(len(file.text)), ModTime: at,
		Format: tar.FormatUSTAR,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(file.text)
	return err
}

func zipped(folder string, files []packed, at time.Time) ([]byte, error) {
	var all bytes.Buffer
	archive := zip.NewWriter(&all)
	for _, file := range files {
		header := &zip.FileHeader{Name: folder + "/" + file.name, Method: zip.Deflate, Modified: at}
		header.SetMode(os.FileMode(file.mode)) //nolint:gosec // one of two modes
		into, err := archive.CreateHeader(header)
		if err == nil {
			_, err = into.Write(file.text)
		}
		if err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return all.Bytes(), err
}

// sums are the lines that sha256sum -c reads, by name.
func sums(files map[string][]byte) []byte {
	var lines []string
	for name, text := range files {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return []byte(strings.Join(lines, ""))
}
