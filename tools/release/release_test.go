package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/version"
)

// A release for this machine: its archive has the program, which runs and says the version that the
// archive's name has, and the sums are right.
func TestReleaseHasAProgramThatRunsBesideItsLicences(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1795500000")
	folder := t.TempDir()
	expect.Error(t, "release", run(t.Context(), []string{"release", folder, runtime.GOOS + "/" + runtime.GOARCH}, io.Discard), nil)
	archives, err := filepath.Glob(filepath.Join(folder, "coatcheck_*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("the archives are %q, %v, want one", archives, err)
	}
	unpack := exec.CommandContext(t.Context(), "tar", "-xzf", archives[0], "-C", folder)
	if said, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, said)
	}
	name := strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz")
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "licences.txt"} {
		if text, err := os.ReadFile(filepath.Join(folder, name, file)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", file, len(text), err)
		}
	}
	said, err := exec.CommandContext(t.Context(), filepath.Join(folder, name, "coatcheck"), "version").Output()
	if want := "coatcheck " + version.Version + " ("; err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("coatcheck version: %q, %v, want %s…)", said, err, want)
	}
	if want := fmt.Sprintf("coatcheck_%s_%s_%s", version.Version, runtime.GOOS, runtime.GOARCH); name != want {
		t.Errorf("the archive is %s, want %s", name, want)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = folder
	if said, err := check.CombinedOutput(); err != nil || strings.Count(string(said), ": OK") != 3 {
		t.Errorf("sha256sum --check: %v\n%s\nwant the archive, the image and the bill of materials to be OK", err, said)
	}
	program, err := os.ReadFile(filepath.Join(folder, name, "coatcheck"))
	expect.Error(t, "the archive's program", err, nil)
	_, inImage := readImage(t, filepath.Join(folder, name+"_image.tar"))
	if got := inImage["coatcheck"]; !bytes.Equal(got.text, program) {
		t.Errorf("the image's program has %d bytes, and the archive's has %d: want the same", len(got.text), len(program))
	}
	if len(inImage["licences.txt"].text) == 0 || len(inImage["LICENSE"].text) == 0 {
		t.Error("the image lacks licences.txt or LICENSE")
	}
}

func TestArchivesHoldTheFilesInOneFolder(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	files := []packed{{"coatcheck", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("text")}}
	want := map[string]string{"a/coatcheck": "program -rwxr-xr-x " + at.String(), "a/LICENSE": "text -rw-r--r-- " + at.String()}
	for kind, read := range map[string]func([]byte) (map[string]string, error){"tar": readTar, "zip": readZip} {
		pack := map[string]func(string, []packed, time.Time) ([]byte, error){"tar": tarred, "zip": zipped}[kind]
		first, err := pack("a", files, at)
		expect.Error(t, kind, err, nil)
		second, err := pack("a", files, at)
		expect.Error(t, kind, err, nil)
		if !bytes.Equal(first, second) {
			t.Errorf("two %ss of the same files differ", kind)
		}
		got, err := read(first)
		expect.Error(t, "reading the "+kind, err, nil)
		if !maps.Equal(got, want) {
			t.Errorf("the %s holds %q, want %q", kind, got, want)
		}
	}
}

func readTar(text []byte) (map[string]string, error) {
	outer, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for inner := tar.NewReader(outer); ; {
		header, err := inner.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(inner)
		if err != nil {
			return nil, err
		}
		files[header.Name] = fmt.Sprintf("%s %v %v", content, header.FileInfo().Mode(), header.ModTime.UTC())
	}
}

func readZip(text []byte) (map[string]string, error) {
	archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, file := range archive.File {
		from, err := file.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(from)
		if err := errors.Join(err, from.Close()); err != nil {
			return nil, err
		}
		files[file.Name] = fmt.Sprintf("%s %v %v", content, file.Mode(), file.Modified.UTC())
	}
	return files, nil
}

func TestSumsAreInTheOrderOfNames(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(string(sums(map[string][]byte{"b": []byte("1"), "a": []byte("2"), "c": nil}))), "\n")
	var names []string
	for _, line := range lines {
		names = append(names, line[66:])
	}
	expect.Equal(t, "names", names, []string{"a", "b", "c"})
	if !slices.Contains(lines, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  c") {
		t.Errorf("sums: %q, want that of an empty file", lines)
	}
}
