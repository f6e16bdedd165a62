package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// inImage is a file of an image, read back.
type inImage struct {
	about string // kind and mode, owner, time
	text  []byte
}

func must(t *testing.T, asked string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", asked, err)
	}
}

// readImage reads an image file as a registry's client does.
func readImage(t *testing.T, path string) (*v1.ConfigFile, map[string]inImage) {
	t.Helper()
	image, err := tarball.ImageFromPath(path, nil)
	must(t, "reading the image", err)
	config, err := image.ConfigFile()
	must(t, "the image's config", err)
	content := mutate.Extract(image)
	defer content.Close()
	files := map[string]inImage{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return config, files
		}
		must(t, "the image's files", err)
		text, err := io.ReadAll(archive)
		must(t, header.Name, err)
		about := fmt.Sprintf("%v %d:%d %s", header.FileInfo().Mode(), header.Uid, header.Gid, header.ModTime.UTC().Format(time.RFC3339))
		files[strings.TrimSuffix(header.Name, "/")] = inImage{about, text}
	}
}

// lastStage reads the Dockerfile's last stage: the config that it makes, and the owner of each path
// that it copies.
func lastStage(t *testing.T) (config v1.Config, copied map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	must(t, "the Dockerfile", err)
	_, stage, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		t.Fatal("the Dockerfile has no last stage that begins FROM scratch")
	}
	copied, config.ExposedPorts = map[string]string{}, map[string]struct{}{}
	for line := range strings.Lines(stage) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch instruction {
		case "", "#":
		case "COPY":
			owner := "0:0"
			for _, word := range words {
				if chown, ok := strings.CutPrefix(word, "--chown="); ok {
					owner = chown
				}
			}
			copied[strings.TrimPrefix(words[len(words)-1], "/")] = owner
		case "USER":
			config.User = rest
		case "ENV":
			config.Env = append(config.Env, rest)
		case "EXPOSE":
			config.ExposedPorts[rest+"/tcp"] = struct{}{}
		case "HEALTHCHECK":
			config.Healthcheck = healthcheck(t, rest)
		case "ENTRYPOINT":
			config.Entrypoint = list(t, rest)
		case "CMD":
			config.Cmd = list(t, rest)
		default:
			t.Errorf("the Dockerfile's last stage has %q, which this test does not know: the image may need it", strings.TrimSpace(line))
		}
	}
	return config, copied
}

func healthcheck(t *testing.T, text string) *v1.HealthConfig {
	t.Helper()
	flags, command, _ := strings.Cut(text, " CMD ")
	health := &v1.HealthConfig{Test: append([]string{"CMD"}, list(t, command)...)}
	for flag := range strings.FieldsSeq(flags) {
		name, value, _ := strings.Cut(flag, "=")
		var err error
		switch name {
		case "--interval":
			health.Interval, err = time.ParseDuration(value)
		case "--timeout":
			health.Timeout, err = time.ParseDuration(value)
		case "--start-period":
			health.StartPeriod, err = time.ParseDuration(value)
		case "--retries":
			health.Retries, err = strconv.Atoi(value)
		default:
			err = errors.New("this test does not know the flag")
		}
		must(t, "HEALTHCHECK "+flag, err)
	}
	return health
}

func list(t *testing.T, text string) (words []string) {
	t.Helper()
	expect.Error(t, text, json.Unmarshal([]byte(text), &words), nil)
	return words
}

// An image says and holds what the Dockerfile's last stage does, beside its labels and licences,
// and is the same each time.
func TestImageIsThatOfTheDockerfile(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	info := &debug.BuildInfo{Main: debug.Module{Path: "github.com/coatcheck/coatcheck"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abcdef"}}}
	files := []packed{{"coatcheck", 0o755, []byte("program")}, {"licences.txt", 0o644, []byte("texts")}}
	one, err := imaged(target{"linux", "arm64"}, "1.2.3+dirty", info, files, at)
	must(t, "the image", err)
	two, err := imaged(target{"linux", "arm64"}, "1.2.3+dirty", info, files, at)
	must(t, "the image", err)
	if !bytes.Equal(one, two) {
		t.Error("two images of the same files differ")
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	must(t, "writing it", os.WriteFile(path, one, 0o600))
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	must(t, "its manifest", err)
	expect.Equal(t, "tags", manifest[0].RepoTags, []string{"coatcheck:1.2.3-dirty"})

	file, inImage := readImage(t, path)
	config, copied := lastStage(t)
	config.Labels = map[string]string{
		"org.opencontainers.image.title": "coatcheck", "org.opencontainers.image.version": "1.2.3+dirty", "org.opencontainers.image.revision": "abcdef",
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/coatcheck/coatcheck",
	}
	expect.Equal(t, "config", file.Config, config)
	expect.Equal(t, "system", fmt.Sprint(file.OS, " ", file.Architecture, " ", file.Created.UTC()), "linux arm64 "+at.String())

	const time = " 2026-11-24T12:00:00Z"
	want := map[string]string{
		"coatcheck": "-rwxr-xr-x " + copied["coatcheck"] + time, "licences.txt": "-rw-r--r-- 0:0" + time,
		"etc": "drwxr-xr-x 0:0" + time, "etc/ssl": "drwxr-xr-x 0:0" + time, "etc/ssl/certs": "drwxr-xr-x 0:0" + time,
		"etc/ssl/certs/ca-certificates.crt": "-rw-r--r-- " + copied["etc/ssl/certs/ca-certificates.crt"] + time,
	}
	got := map[string]string{}
	for name, file := range inImage {
		got[name] = file.about
	}
	expect.Equal(t, "files", got, want)
	expect.Equal(t, "paths that the Dockerfile copies", len(copied), 2)
	expect.Equal(t, "the program", string(inImage["coatcheck"].text), "program")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(inImage["etc/ssl/certs/ca-certificates.crt"].text) {
		t.Error("the image's certificates cannot be read")
	}
	if count := bytes.Count(inImage["etc/ssl/certs/ca-certificates.crt"].text, []byte("BEGIN CERTIFICATE")); count < 100 {
		t.Errorf("the image has %d certificates, want 100 at least", count)
	}
}
