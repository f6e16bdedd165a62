package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	gomodule "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/version"
)

// An adapter is a module of its own, with the version of the library that it is released with. Who
// asks for the adapter alone, from a proxy that has nothing but what is released, gets both.
func TestAdaptersComeFromAProxyAlone(t *testing.T) {
	t.Setenv("GOWORK", "off")
	files := treeFiles(t)
	proxy := fileProxy{t.TempDir(), files}
	proxy.publish(t, ".")
	adapters := adaptersOf(t, files)
	for _, adapter := range adapters {
		proxy.publish(t, adapter)
		goCommand(t, filepath.Join(root, adapter), "GOWORK=", "mod", "download")
	}
	expect.Contains(t, "the adapters", strings.Join(adapters, " "), "idempotency/echov5", "idempotency/fiberv3", "idempotency/ginmw", "idempotency/grpcmw")
	downloaded := strings.TrimSpace(goCommand(t, root, "", "env", "GOMODCACHE"))
	t.Setenv("GOPROXY", "file://"+proxy.folder+",file://"+filepath.Join(downloaded, "cache/download"))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw") // so that the folder can be removed
	t.Setenv("GONOSUMDB", "*")
	for _, adapter := range adapters {
		t.Run(path.Base(adapter), func(t *testing.T) {
			program, imported := t.TempDir(), libraryPath+"/"+adapter
			write(t, filepath.Join(program, "go.mod"), "module example.org/shop\n\ngo 1.26.0\n")
			write(t, filepath.Join(program, "main.go"), "package main\n\nimport _ \""+imported+"\"\n\nfunc main() {}\n")
			goCommand(t, program, "", "get", imported+"@v"+version.Version)
			packages := goCommand(t, program, "", "list", "-deps", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}", ".")
			for _, want := range []string{libraryPath, imported} {
				expect.Contains(t, "the modules of a program", packages, "\n"+want+"@v"+version.Version+"\n")
			}
		})
	}
}

const libraryPath = "github.com/coatcheck/coatcheck"

// treeFiles are the files that a commit of this tree has, by their paths from its root.
func treeFiles(t *testing.T) []string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	expect.MustEqual(t, "error of listing the files of the tree", err, nil)
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files
}

// adaptersOf are the modules of packages that other programs import: those whose go.mod asks for a
// version of the library, and names no folder in its place.
func adaptersOf(t *testing.T, files []string) (folders []string) {
	t.Helper()
	for _, name := range files {
		if path.Base(name) != "go.mod" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		expect.MustEqual(t, "error of reading "+name, err, nil)
		mod, err := modfile.Parse(name, text, nil)
		expect.MustEqual(t, "error of reading "+name, err, nil)
		required := slices.ContainsFunc(mod.Require, func(r *modfile.Require) bool { return r.Mod.Path == libraryPath })
		replaced := slices.ContainsFunc(mod.Replace, func(r *modfile.Replace) bool { return r.Old.Path == libraryPath })
		if required && !replaced {
			folders = append(folders, path.Dir(name))
		}
	}
	return folders
}

// fileProxy is a folder of modules, as GOPROXY has it (https://go.dev/ref/mod#goproxy-protocol).
type fileProxy struct {
	folder string
	files  []string
}

// publish puts the module in a folder of the tree there, in the tree's version.
func (p fileProxy) publish(t *testing.T, folder string) {
	t.Helper()
	released := gomodule.Version{Path: path.Join(libraryPath, folder), Version: "v" + version.Version}
	var files []modzip.File
	for _, name := range p.files {
		if inside, err := filepath.Rel(folder, name); err == nil && filepath.IsLocal(inside) {
			files = append(files, treeFile{name, filepath.ToSlash(inside)})
		}
	}
	var packed bytes.Buffer
	expect.MustEqual(t, "error of packing "+released.Path, modzip.Create(&packed, released, files), nil)
	mod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	expect.MustEqual(t, "error of reading go.mod of "+released.Path, err, nil)
	info, err := json.Marshal(map[string]any{"Version": released.Version, "Time": time.Now().UTC()})
	expect.MustEqual(t, "error of writing about "+released.Path, err, nil)
	at := filepath.Join(p.folder, released.Path, "@v")
	expect.MustEqual(t, "error of making a folder", os.MkdirAll(at, 0o700), nil)
	for ending, text := range map[string]string{".info": string(info), ".mod": string(mod), ".zip": packed.String()} {
		write(t, filepath.Join(at, released.Version+ending), text)
	}
	write(t, filepath.Join(at, "list"), released.Version+"\n")
}

// treeFile is a file of the tree, with its path in a module.
type treeFile struct{ name, inside string }

func (f treeFile) Path() string                 { return f.inside }
func (f treeFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(root, f.name)) }
func (f treeFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(root, f.name)) }

func write(t *testing.T, file, text string) {
	t.Helper()
	expect.MustEqual(t, "error of writing "+file, os.WriteFile(file, []byte(text), 0o600), nil)
}

// goCommand runs the go command with one more variable, and returns what it prints.
func goCommand(t *testing.T, folder, variable string, args ...string) string {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir = folder
	if variable != "" {
		command.Env = append(os.Environ(), variable)
	}
	var complaint strings.Builder
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return string(out)
}
