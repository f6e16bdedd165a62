package openapi_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/coatcheck/coatcheck/openapi"
)

// elsewhere are the schemas of bodies that package api does not have: those of the interfaces of
// Leaf and tinyid, one constant, and an Answer as a request has it.
var elsewhere = []string{"Completion", "LeafDecoded", "JavaFault", "TinyidIDs", "TinyidRange", "Liveness"}

// The document and package api are written by hand both. A schema and a type of one name have the
// same fields, of the same kinds; a type without a schema of its own is compared where a field has
// it. A schema without a type is part of one that has one.
func TestTheDocumentAndPackageAPIHaveTheSameFields(t *testing.T) {
	c := comparison{T: t, schemas: published(t).Components.Schemas, types: apiTypes(t), met: map[string]bool{}}
	for name := range c.types {
		if schema := c.schemas[name]; schema != nil {
			c.compare(name, name, schema)
		}
	}
	for name := range c.types {
		if !c.met[name] && name != "Kind" {
			t.Errorf("the document has no schema %s, and no field that is one", name)
		}
	}
	for name, schema := range c.schemas {
		if len(properties(schema)) > 0 && !c.met[name] && !slices.Contains(elsewhere, name) {
			t.Errorf("package api has no type %s, and the schema is no part of one", name)
		}
	}
	if len(c.met) < 50 {
		t.Errorf("%d types and schemas were met: does this test still read them?", len(c.met))
	}
}

// A comparison that finds nothing anywhere would pass as well.
func TestAFieldThatOneOfThemLacksIsFound(t *testing.T) {
	for _, row := range []struct{ is, becomes, fault string }{
		{"expires_at: { $ref: '#/components/schemas/Time' }", "ends_at: { $ref: '#/components/schemas/Time' }", "no field ends_at"},
		{"worker_id: { type: integer", "worker_id: { type: string", "worker_id"},
	} {
		text := strings.ReplaceAll(string(openapi.Document()), row.is, row.becomes)
		if text == string(openapi.Document()) {
			t.Fatalf("the document does not have %q", row.is)
		}
		s := &spied{TB: t}
		c := comparison{T: s, schemas: load(t, []byte(text)).Components.Schemas, types: apiTypes(t), met: map[string]bool{}}
		for name := range c.types {
			if schema := c.schemas[name]; schema != nil {
				c.compare(name, name, schema)
			}
		}
		if !strings.Contains(strings.Join(s.faults, "\n"), row.fault) {
			t.Errorf("with %q for %q: got %q, want a fault with %q", row.becomes, row.is, s.faults, row.fault)
		}
	}
}

// spied keeps the faults that a comparison finds.
type spied struct {
	testing.TB

	faults []string
}

func (s *spied) Errorf(format string, values ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, values...))
}

type comparison struct {
	T       testing.TB
	schemas openapi3.Schemas
	types   map[string][]apiField
	met     map[string]bool // types and schemas
}

// compare looks at a type and at the schema that stands at a place in the document.
func (c comparison) compare(place, name string, schema *openapi3.SchemaRef) {
	c.met[name] = true
	c.note(schema)
	fields, documented := c.fields(name), properties(schema)
	for key := range documented {
		if _, ok := fields[key]; !ok {
			c.T.Errorf("%s: type api.%s has no field %s", place, name, key)
		}
	}
	for key, field := range fields {
		property := documented[key]
		if property == nil {
			c.T.Errorf("%s: the document has no %s, as type api.%s has", place, key, name)
			continue
		}
		element := property
		if field.kind == "array" && property.Value.Items != nil {
			element = property.Value.Items
		}
		if kinds := kindsOf(property); len(kinds) > 0 && !slices.Contains(kinds, field.kind) {
			c.T.Errorf("%s: %s is %s in type api.%s, and %v in the document", place, key, field.kind, name, kinds)
		}
		if c.types[field.of] != nil && (c.schemas[field.of] == nil || !c.met[field.of]) {
			c.compare(place+"."+key, field.of, element)
		}
	}
}

// note notes the schemas of which a schema is made.
func (c comparison) note(schema *openapi3.SchemaRef) {
	if name, is := strings.CutPrefix(schema.Ref, "#/components/schemas/"); is {
		c.met[name] = true
	}
	for _, part := range parts(schema) {
		c.note(part)
	}
}

// fields are those of a type, with those of the types that are embedded in it.
func (c comparison) fields(name string) map[string]apiField {
	all := map[string]apiField{}
	for _, field := range c.types[name] {
		if field.name != "" {
			all[field.name] = field
			continue
		}
		c.met[field.of] = true
		maps.Copy(all, c.fields(field.of))
	}
	return all
}

func properties(schema *openapi3.SchemaRef) map[string]*openapi3.SchemaRef {
	all := map[string]*openapi3.SchemaRef{}
	maps.Copy(all, schema.Value.Properties)
	for _, part := range parts(schema) {
		maps.Copy(all, properties(part))
	}
	return all
}

func parts(schema *openapi3.SchemaRef) []*openapi3.SchemaRef {
	return slices.Concat(schema.Value.AllOf, schema.Value.OneOf, schema.Value.AnyOf)
}

// kindsOf are the types that a schema allows; none if it does not say.
func kindsOf(schema *openapi3.SchemaRef) (kinds []string) {
	kinds = append(kinds, schema.Value.Type.Slice()...)
	for _, part := range parts(schema) {
		kinds = append(kinds, kindsOf(part)...)
	}
	return kinds
}

// apiField is a field of a type: its name in JSON, "" if it is embedded, its kind there, and the
// type of it or of its elements.
type apiField struct{ name, kind, of string }

// apiTypes reads the structs of package api from its source, so that none is forgotten.
func apiTypes(t *testing.T) map[string][]apiField {
	t.Helper()
	files, err := filepath.Glob("../api/*.go")
	if err != nil {
		t.Fatalf("listing package api: %v", err)
	}
	all := map[string][]apiField{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatalf("reading package api: %v", err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, is := node.(*ast.TypeSpec); is {
				if body, is := spec.Type.(*ast.StructType); is {
					all[spec.Name.Name] = apiFields(body)
				}
			}
			return true
		})
	}
	return all
}

func apiFields(body *ast.StructType) []apiField {
	fields := []apiField{}
	for _, field := range body.Fields.List {
		kind, of := kindAndType(field.Type)
		switch {
		case len(field.Names) == 0:
			fields = append(fields, apiField{"", kind, of})
		case field.Tag != nil:
			tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
			if tag != "" && tag != "-" {
				fields = append(fields, apiField{tag, kind, of})
			}
		}
	}
	return fields
}

// kindAndType is how a Go type is written in JSON, and its own name or that of its elements.
func kindAndType(expression ast.Expr) (kind, of string) {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return kindAndType(e.X)
	case *ast.ArrayType:
		_, of = kindAndType(e.Elt)
		if of == "byte" {
			return "string", of
		}
		return "array", of
	case *ast.MapType:
		return "object", ""
	case *ast.Ident:
		switch e.Name {
		case "int", "int64", "uint64":
			return "integer", e.Name
		case "bool":
			return "boolean", e.Name
		case "string", "Code", "State", "Decision", "Time":
			return "string", e.Name
		}
		return "object", e.Name
	}
	return "string", "" // of another package
}
