package stable

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/coatcheck/coatcheck"

// modules are the folders whose packages are promised, each with its packages: those of
// docs/stability.md.
var modules = map[string][]string{
	".": {
		"client", "coatchecktest", "counter", "embedded", "idempotency", "idempotency/echov4",
		"idempotency/jwtprincipal", "limit", "lock", "metrics", "number", "redisstore", "redisstore/observe", "segment",
		"segment/redissource", "snowflake", "workerlease", "workerlease/holder",
	},
	"idempotency/echov5":  {""},
	"idempotency/fiberv3": {""},
	"idempotency/ginmw":   {""},
	"idempotency/grpcmw":  {""},
}

// load reads what packages of modules in a tree export.
func load(ctx context.Context, tree string, modules map[string][]string) (map[string]*packages.Package, error) {
	found := map[string]*packages.Package{}
	for folder, names := range modules {
		var patterns []string
		for _, name := range names {
			patterns = append(patterns, "./"+name)
		}
		all, err := packages.Load(&packages.Config{
			Context: ctx, Dir: filepath.Join(tree, folder),
			Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
		}, patterns...)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			for _, fault := range p.Errors {
				err = errors.Join(err, fmt.Errorf("%s: %w", p.PkgPath, fault))
			}
			found[p.PkgPath] = p
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// brokenGo are the incompatible changes of what packages export, each with its package.
func brokenGo(before, now map[string]*packages.Package) (broken []string) {
	for path, was := range before {
		name := strings.TrimPrefix(path, module+"/")
		is := now[path]
		if is == nil {
			broken = append(broken, name+": package removed")
			continue
		}
		for _, change := range apidiff.Changes(was.Types, is.Types).Changes {
			if !change.Compatible {
				broken = append(broken, name+": "+change.Message)
			}
		}
	}
	return broken
}
