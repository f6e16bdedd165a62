//go:build compose

package containers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engine is a Docker engine of a test's own.
type engine struct {
	folder string
	socket string
}

// startEngine starts an engine that ends with the test, by its process id.
func startEngine(t *testing.T) *engine {
	t.Helper()
	folder := t.TempDir()
	e := &engine{folder, "unix://" + folder + "/docker.sock"}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatalf("making the log of the engine: %v", err)
	}
	daemon := exec.Command("dockerd", "--data-root", folder+"/data", "--exec-root", folder+"/exec", "-H", e.socket, "-p", folder+"/pid", "--log-level", "warn")
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatalf("starting dockerd: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("dockerd, process %d, has not ended within a minute of SIGTERM", daemon.Process.Pid)
			_ = daemon.Process.Kill()
		}
	})
	eventually(t, "the engine answers", func() bool {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd has ended: %v\n%s", err, text)
		default:
		}
		_, err := e.try(t.Context(), "docker", "version")
		return err == nil
	})
	return e
}

// try runs a command with this engine, and returns what it wrote to its standard output.
func (e *engine) try(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), "DOCKER_HOST="+e.socket, "COMPOSE_PROJECT_NAME=coatcheck", "COMPOSE_INTERACTIVE_NO_CLI=1")
	var out, faults strings.Builder
	command.Stdout, command.Stderr = &out, &faults
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, faults.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (e *engine) docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.try(t.Context(), "docker", args...)
	if err != nil {
		t.Fatalf("docker %s: %v", args[0], err)
	}
	return out
}

// importImage makes an image of a folder's files.
func (e *engine) importImage(t *testing.T, folder, name string, changes ...string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", folder, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	e.docker(t, append(args, archive, name)...)
}

// redisImage imports this machine's redis-server, or Valkey's, with what the commands of
// docker-compose.yml use.
func (e *engine) redisImage(t *testing.T, name, kind string) {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"bin", "etc", "data", "tmp", "usr"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	must(t, os.Chmod(filepath.Join(root, "tmp"), 0o777))
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/:/bin/sh\nredis:x:999:999:redis:/data:/bin/sh\n", "group": "root:x:0:\nredis:x:999:\n", "nsswitch.conf": "hosts: files dns\n",
	} {
		must(t, os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644))
	}
	must(t, os.Chown(filepath.Join(root, "data"), 999, 999))
	// a server of this name is a sentinel
	for program, as := range map[string]string{kind + "-server": kind + "-sentinel", kind + "-cli": "", "sh": "", "timeout": "", "cat": "", "cut": "", "grep": "", "sed": "", "getent": ""} {
		path, err := exec.LookPath(program)
		must(t, err)
		withLibraries(t, root, path, "/bin/"+program)
		if as != "" {
			copyFile(t, path, filepath.Join(root, "bin", as))
			copyFile(t, path, filepath.Join(root, "usr/libexec", program))
			// as in the image of the Redis project: containers have a network of their own
			wrapper := "#!/bin/sh\nexec /usr/libexec/" + program + " \"$@\" --protected-mode no\n"
			must(t, os.WriteFile(filepath.Join(root, "bin", program), []byte(wrapper), 0o755))
		}
	}
	e.importImage(t, root, name, "ENV PATH=/bin", "WORKDIR /data", "VOLUME /data", "EXPOSE 6379")
}

// withLibraries copies a program, and the libraries that it is linked with, below a root.
func withLibraries(t *testing.T, root, program, as string) {
	t.Helper()
	copyFile(t, program, filepath.Join(root, as))
	out, err := exec.CommandContext(t.Context(), "ldd", program).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd %s: %v\n%s", program, err, out)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			copyFile(t, word, filepath.Join(root, word))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from) // follows links
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(t, os.WriteFile(to, content, 0o755))
}

// serviceImage builds the Dockerfile's last stage around a fresh build of the program.
func (e *engine) serviceImage(t *testing.T, name string) {
	t.Helper()
	context := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(context, "out", "coatcheck"), "./cmd/coatcheck")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building coatcheck: %v\n%s", err, out)
	}
	must(t, os.MkdirAll(filepath.Join(context, "out", "data"), 0o755))
	copyFile(t, "/etc/ssl/certs/ca-certificates.crt", filepath.Join(context, "etc/ssl/certs/ca-certificates.crt"))
	text, err := os.ReadFile("../../Dockerfile")
	must(t, err)
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		t.Fatal("the Dockerfile has no last stage that begins FROM scratch")
	}
	last = "FROM scratch\n" + strings.ReplaceAll(last, "--from=build ", "")
	must(t, os.WriteFile(filepath.Join(context, "Dockerfile"), []byte(last), 0o644))
	e.docker(t, "build", "-t", name, context)
}

// releasedImage loads the image file of a release for this machine, as its users do, and returns
// its name.
func (e *engine) releasedImage(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	release := exec.CommandContext(t.Context(), "go", "run", ".", "release", folder, "linux/"+runtime.GOARCH)
	release.Dir = "../../tools/release"
	if out, err := release.CombinedOutput(); err != nil {
		t.Fatalf("building a release: %v\n%s", err, out)
	}
	images, err := filepath.Glob(filepath.Join(folder, "coatcheck_*_image.tar"))
	if err != nil || len(images) != 1 {
		t.Fatalf("images of a release for one system: got %v, %v; want one", images, err)
	}
	_, name, _ := strings.Cut(e.docker(t, "load", "-i", images[0]), "Loaded image: ")
	return name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("a file: %v", err)
	}
}

// eventually waits for a condition, for five minutes at most: starting takes long on a busy
// machine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("waited 5m in vain: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
