package stable

import (
	"fmt"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// unpromised are the exported signatures of packages that have a type of this repository without a
// promised name: declared in another package, and no alias here names it. Each is the exported name
// and the type.
func unpromised(promised map[string]*packages.Package) (found []string) {
	named := map[string]bool{}
	for _, p := range promised {
		for _, name := range p.Types.Scope().Names() {
			if alias, ok := exported(p, name).(*types.TypeName); ok && alias.IsAlias() {
				named[types.TypeString(types.Unalias(alias.Type()), nil)] = true
			}
		}
	}
	for _, p := range promised {
		for _, name := range p.Types.Scope().Names() {
			if object := exported(p, name); object != nil {
				w := &walk{promised: promised, named: named, seen: map[types.Type]bool{}}
				w.object(object)
				for _, other := range w.others {
					found = append(found, fmt.Sprintf("%s.%s: %s", short(p.PkgPath), name, other))
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func exported(p *packages.Package, name string) types.Object {
	if object := p.Types.Scope().Lookup(name); object.Exported() {
		return object
	}
	return nil
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// walk visits all types that a user of one exported name meets.
type walk struct {
	promised map[string]*packages.Package
	named    map[string]bool
	seen     map[types.Type]bool
	others   []string
}

func (w *walk) object(object types.Object) {
	declared, ok := object.(*types.TypeName)
	if !ok {
		w.use(object.Type())
		return
	}
	w.inside(types.Unalias(declared.Type()))
}

// inside visits what a type has: its fields, its methods, those of an interface.
func (w *walk) inside(t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	w.use(t.Underlying())
	if named, ok := t.(*types.Named); ok {
		for method := range named.Methods() {
			if method.Exported() {
				w.use(method.Type())
			}
		}
	}
}

// use visits a type in a signature.
func (w *walk) use(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.name(t.Obj(), t)
	case *types.Named:
		w.name(t.Obj(), t)
		for argument := range t.TypeArgs().Types() {
			w.use(argument)
		}
	case *types.Struct:
		w.fields(t)
	case *types.Interface:
		for method := range t.Methods() {
			w.use(method.Type())
		}
	case *types.Signature:
		w.use(t.Params())
		w.use(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			w.use(v.Type())
		}
	case *types.Map:
		w.use(t.Key())
		w.use(t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		w.use(t.Elem())
	}
}

// fields visits the exported fields, and what an embedded one lends.
func (w *walk) fields(t *types.Struct) {
	for field := range t.Fields() {
		switch {
		case field.Exported():
			w.use(field.Type())
		case field.Embedded():
			w.inside(types.Unalias(field.Type()))
		}
	}
}

// name visits a named type: a promised one is visited at its own name.
func (w *walk) name(object *types.TypeName, t types.Type) {
	if object.Pkg() == nil || !strings.HasPrefix(object.Pkg().Path()+"/", module+"/") {
		return
	}
	declared := w.promised[object.Pkg().Path()] != nil && object.Exported()
	if !declared && !w.named[types.TypeString(types.Unalias(t), nil)] {
		w.others = append(w.others, short(object.Pkg().Path())+"."+object.Name())
	}
}
