//go:build check

package coatcheck_test

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What a public package exports shows no type of an internal one: no other module could name it,
// and go doc would not show its methods.
func TestExportedNamesShowNoInternalTypes(t *testing.T) {
	exports, public := exportData(t)
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	from := importer.ForCompiler(token.NewFileSet(), "gc", lookup)
	checked := 0
	for _, path := range public {
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatalf("reading the exported names of %s: %v", path, err)
		}
		for _, name := range pkg.Scope().Names() {
			if object := pkg.Scope().Lookup(name); object.Exported() {
				checked++
				shown := &shownTypes{seen: map[types.Type]bool{}}
				shown.object(object)
				where := strings.TrimPrefix(path, module+"/") + "." + name
				for _, found := range shown.internal {
					if !ourOwn[where] {
						t.Errorf("%s shows %s", where, found)
					}
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d exported names were looked at, want all of the public packages", checked)
	}
}

// ourOwn are for server and gateway alone, which are packages of their own: what they return goes
// out as the JSON that the OpenAPI document describes.
var ourOwn = map[string]bool{"idempotency.Problem": true, "idempotency.Route": true}

// exportData compiles the public packages, and returns the files of what they and those under them
// export.
func exportData(t *testing.T) (exports map[string]string, public []string) {
	t.Helper()
	const form = `{{.ImportPath}}|{{.Export}}|{{.DepOnly}}|{{.Name}}`
	said, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-tags=check", "-f", form, "./...").Output()
	expect.NoError(t, "go list -export", err)
	exports = map[string]string{}
	for line := range strings.Lines(string(said)) {
		field := strings.Split(strings.TrimSpace(line), "|")
		exports[field[0]] = field[1]
		isOurs := field[2] == "false" && strings.HasPrefix(field[0], module) && field[3] != "main" && field[1] != ""
		if isOurs && !strings.Contains(field[0], "/internal/") && !strings.Contains(field[0], "/chaos") {
			public = append(public, field[0])
		}
	}
	return exports, public
}

// shownTypes walks what a name shows: its type, and the exported fields and methods of that.
type shownTypes struct {
	seen     map[types.Type]bool
	internal []string
}

func (s *shownTypes) object(object types.Object) {
	s.walk(object.Type())
	named, ok := object.Type().(*types.Named)
	if _, isType := object.(*types.TypeName); !isType || !ok {
		return
	}
	s.walk(named.Underlying())
	for method := range named.Methods() {
		if method.Exported() {
			s.walk(method.Type())
		}
	}
}

func (s *shownTypes) walk(of types.Type) {
	if s.seen[of] {
		return
	}
	s.seen[of] = true
	switch of := of.(type) {
	case *types.Alias:
		s.walk(of.Rhs())
	case *types.Named:
		if pkg := of.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), module+"/internal/") {
			s.internal = append(s.internal, fmt.Sprintf("%s.%s", pkg.Path(), of.Obj().Name()))
		}
		for argument := range of.TypeArgs().Types() {
			s.walk(argument)
		}
	case *types.Struct:
		for field := range of.Fields() {
			if field.Exported() {
				s.walk(field.Type())
			}
		}
	case *types.Interface:
		for method := range of.Methods() {
			s.walk(method.Type())
		}
	case *types.Signature:
		s.walk(of.Params())
		s.walk(of.Results())
	case *types.Tuple:
		for parameter := range of.Variables() {
			s.walk(parameter.Type())
		}
	case *types.Map:
		s.walk(of.Key())
		s.walk(of.Elem())
	case interface{ Elem() types.Type }:
		s.walk(of.Elem())
	}
}
