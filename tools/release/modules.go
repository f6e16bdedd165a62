package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a module whose code is in the binary.
type module struct {
	path, version string
	dir           string
	packages      []string // folders of its packages that are in the binary
}

// listed is a package as `go list -json` tells it, as far as it is asked for. Its names begin with
// capitals there, which decoding accepts.
type listed struct {
	Dir      string `json:"dir"`
	Standard bool   `json:"standard"`
	Module   *struct {
		Path    string `json:"path"`
		Version string `json:"version"`
		Dir     string `json:"dir"`
		Main    bool   `json:"main"`
	} `json:"module"`
}

// target is a system that the program is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// linux is the target of which docs/licences.md lists the modules.
var linux = target{"linux", "amd64"}

// environment is that of a go command that builds for the target.
func (t target) environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
}

// modulesOf lists the modules in the binary of the repository at root, but its own, as it is built
// for a target, in the order of their paths.
func modulesOf(ctx context.Context, root string, t target) ([]module, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/coatcheck")
	list.Dir, list.Env = root, t.environment()
	var complaint bytes.Buffer
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, complaint.String())
	}
	found := map[string]*module{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		if found[p.Module.Path] == nil {
			found[p.Module.Path] = &module{path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir}
		}
		m := found[p.Module.Path]
		m.packages = append(m.packages, p.Dir)
	}
	if len(found) == 0 {
		return nil, errors.New("the binary holds no modules: is this the root of the repository?")
	}
	var all []module
	for _, m := range found {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// folders are those of the module's packages and all above them, from the module's own on.
func (m *module) folders() []string {
	all := []string{m.dir}
	for _, folder := range m.packages {
		for ; len(folder) > len(m.dir); folder = filepath.Dir(folder) {
			if !slices.Contains(all, folder) {
				all = append(all, folder)
			}
		}
	}
	return all
}
