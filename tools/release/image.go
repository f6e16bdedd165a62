package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The image is that of the Dockerfile's last stage, with the licences, whose text has to go along
// with what is published. A test compares the two.

// user is who the program runs as in a container.
const user = 65532

// settings are what the image says about how to run the program.
func settings(version string, info *debug.BuildInfo) v1.Config {
	labels := map[string]string{
		"org.opencontainers.image.title": "coatcheck", "org.opencontainers.image.version": version,
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://" + info.Main.Path,
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			labels["org.opencontainers.image.revision"] = setting.Value
		}
	}
	return v1.Config{
		User:         fmt.Sprintf("%d:%d", user, user),
		Env:          []string{"COATCHECK_LISTEN=0.0.0.0:8080"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/coatcheck", "healthcheck"},
			Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 10 * time.Second, Retries: 3,
		},
		Entrypoint: []string{"/coatcheck"},
		Cmd:        []string{"serve"},
		Labels:     labels,
	}
}

// imaged writes a container image of the files as `docker save` does: what docker load, podman load
// and skopeo read. It is tagged coatcheck:VERSION, with a hyphen for a plus, which a tag cannot
// have.
func imaged(t target, version string, info *debug.BuildInfo, files []packed, at time.Time) ([]byte, error) {
	tag, err := name.NewTag("coatcheck:" + strings.ReplaceAll(version, "+", "-"))
	if err != nil {
		return nil, err
	}
	content, err := rootOf(files, at)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = t.os, t.arch, v1.Time{Time: at}, settings(version, info)
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, err
	}
	var all bytes.Buffer
	err = tarball.Write(tag, image, &all)
	return all.Bytes(), err
}

// rootOf is the root of the image's file system: the files and certificates.
func rootOf(files []packed, at time.Time) ([]byte, error) {
	var all bytes.Buffer
	archive := tar.NewWriter(&all)
	var faults []error
	for _, folder := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR}
		faults = append(faults, archive.WriteHeader(header))
	}
	for _, file := range append([]packed{{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()}}, files...) {
		faults = append(faults, pack(archive, file.name, file, at))
	}
	return all.Bytes(), errors.Join(append(faults, archive.Close())...)
}

// certificates are Mozilla's, as golang.org/x/crypto has them at the version in go.mod, so that the
// same commit makes the same image on every machine. The Dockerfile takes Debian's, which are
// Mozilla's too. A root that is trusted only for what it signed up to a day is left out: the file
// cannot say so.
func certificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}
