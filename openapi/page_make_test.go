package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"flag"
	"html/template"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	//go:embed page.tmpl
	pageForm string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// What the page shows, in its order.
type view struct {
	Title, Summary string
	Notes          []paragraph
	Style          template.CSS
	Script         template.JS
	Groups         []group
	Answers        []answer // that several operations share
	Schemas        []schemaView
	Codes          []code
	Security       []field
	Anywhere       []field // headers of every answer
}

// group is the operations of one tag.
type group struct {
	Name       string
	Notes      []paragraph
	Operations []operation
}

type operation struct {
	ID, Method, Path, Summary string
	Role, When                string
	Also                      []string // other methods that are answered alike
	AnyQuery                  bool
	Notes                     []paragraph
	Parameters                []parameter
	Bodies                    []content
	BodyRequired              bool
	Answers                   []answer
}

type parameter struct {
	field

	In, Example string
}

type answer struct {
	Status string
	// its name where several operations have it; then the rest is said once, in a place of its own
	Shared   string
	Codes    []string
	Notes    []paragraph
	Headers  []field
	Contents []content
}

type content struct {
	Media    string
	Kind     kind
	Fields   []field
	Variants []kind
	Examples []example
}

type example struct{ Name, Text string }

type schemaView struct {
	Name     string
	Notes    []paragraph
	Kind     kind
	Fields   []field
	Variants []kind
}

type code struct{ Name, Status, Retryable, When string }

var update = flag.Bool("update", false, "make docs.html.gz and openapi.yaml.gz anew")

func TestPageIsMadeFromTheDocument(t *testing.T) {
	written, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatalf("reading the document: %v", err)
	}
	root, err := read(written)
	if err != nil {
		t.Fatalf("the document as YAML: %v", err)
	}
	form, err := template.New("page").Parse(pageForm)
	if err != nil {
		t.Fatalf("the template of the page: %v", err)
	}
	var made bytes.Buffer
	if err := form.Execute(&made, viewOf(root)); err != nil {
		t.Fatalf("making the page: %v", err)
	}
	for _, one := range []struct {
		file          string
		packed, wants []byte
	}{{"openapi.yaml.gz", document, written}, {"docs.html.gz", page, made.Bytes()}} {
		if *update {
			if err := os.WriteFile(one.file, packed(t, one.wants), 0o644); err != nil {
				t.Fatalf("writing %s: %v", one.file, err)
			}
		} else if !bytes.Equal(unpacked(one.packed), one.wants) {
			t.Errorf("%s is not what openapi.yaml makes: go test ./openapi -run TestPageIsMadeFromTheDocument -update", one.file)
		}
	}
}

func packed(t *testing.T, text []byte) []byte {
	t.Helper()
	var all bytes.Buffer
	writer, err := gzip.NewWriterLevel(&all, gzip.BestCompression)
	if err != nil {
		t.Fatalf("packing: %v", err)
	}
	if _, err = writer.Write(text); err != nil {
		t.Fatalf("packing: %v", err)
	}
	if err = writer.Close(); err != nil {
		t.Fatalf("packing: %v", err)
	}
	return all.Bytes()
}

func viewOf(root node) view {
	v := view{
		Title: root.at("info", "title").text(), Summary: root.at("info", "summary").text(), Notes: paragraphs(root.at("info", "description").text()),
		Style: template.CSS(pageStyle), Script: template.JS(pageScript),
	}
	for tag := range root.at("tags").items() {
		name := tag.at("name").text()
		v.Groups = append(v.Groups, group{name, paragraphs(tag.at("description").text()), operationsOf(root, name)})
	}
	components := root.at("components")
	for name, response := range components.at("responses").members() {
		shared := answerOf("", response)
		shared.Shared = name
		v.Answers = append(v.Answers, shared)
	}
	for name, schema := range components.at("schemas").members() {
		v.Schemas = append(v.Schemas, schemaOf(name, schema))
	}
	for name, problem := range components.at("schemas", "ProblemCode", "x-coatcheck-problems").members() {
		v.Codes = append(v.Codes, code{name, problem.at("status").text(), problem.at("retryable").text(), problem.at("when").text()})
	}
	for name, scheme := range components.at("securitySchemes").members() {
		v.Security = append(v.Security, field{Name: name, Kind: kind{Words: scheme.at("type").text()}, Notes: paragraphs(scheme.at("description").text())})
	}
	v.Anywhere = headersOf(root.at("x-coatcheck-headers"))
	return v
}

var methods = []string{"get", "head", "post", "put", "patch", "delete"}

// operationsOf lists those of a tag, in the order of the document.
func operationsOf(root node, tag string) (list []operation) {
	for path, item := range root.at("paths").members() {
		for method, described := range item.members() {
			if slices.Contains(methods, method) && slices.Contains(described.at("tags").texts(), tag) {
				list = append(list, operationOf(strings.ToUpper(method), path, item, described))
			}
		}
	}
	return list
}

// alsoOf lists other methods, each with the role that it needs, such as HEAD (use).
func alsoOf(described node) (list []string) {
	for method, role := range described.members() {
		list = append(list, method+" ("+role.text()+")")
	}
	return list
}

func operationOf(method, path string, item, described node) operation {
	o := operation{
		ID: described.at("operationId").text(), Method: method, Path: path, Summary: described.at("summary").text(),
		Role: described.at("x-coatcheck-role").text(), When: item.at("x-coatcheck-when").text(), Also: alsoOf(described.at("x-coatcheck-also")),
		AnyQuery: described.at("x-coatcheck-query").is(), Notes: paragraphs(described.at("description").text()),
	}
	for _, list := range []node{item.at("parameters"), described.at("parameters")} {
		for one := range list.items() {
			o.Parameters = append(o.Parameters, parameterOf(one))
		}
	}
	body, _ := described.at("requestBody").resolved()
	o.Bodies, o.BodyRequired = contentsOf(body), body.at("required").text() == "true"
	for status, response := range described.at("responses").members() {
		o.Answers = append(o.Answers, answerOf(status, response))
	}
	return o
}

func parameterOf(one node) parameter {
	one, _ = one.resolved()
	return parameter{
		field: field{
			Name: one.at("name").text(), Required: one.at("required").text() == "true", Kind: kindOf(one.at("schema")), Notes: paragraphs(one.at("description").text()),
		},
		In: one.at("in").text(), Example: one.at("example").text(),
	}
}

// answerOf is an answer of an operation, or one that is shared, which has no status of its own. A
// shared problem is told by its name and codes alone.
func answerOf(status string, response node) answer {
	target, name := response.resolved()
	a := answer{Status: status, Notes: paragraphs(target.at("description").text())}
	problem := target.at("content", "application/problem+json", "schema", "properties", "code")
	a.Codes = problem.at("x-extensible-enum").texts()
	if name != "" && problem.is() {
		a.Shared = name
		return a
	}
	a.Headers, a.Contents = headersOf(target.at("headers")), contentsOf(target)
	return a
}

func headersOf(headers node) (list []field) {
	for name, header := range headers.members() {
		header, _ = header.resolved()
		list = append(list, field{
			Name: name, Required: header.at("required").text() == "true", Kind: kindOf(header.at("schema")), Notes: paragraphs(header.at("description").text()),
		})
	}
	return list
}

func contentsOf(target node) (list []content) {
	for media, described := range target.at("content").members() {
		schema := described.at("schema")
		one := content{Media: media, Kind: kindOf(schema), Fields: fieldsOf(schema), Examples: examplesOf(described)}
		for _, variant := range variants(schema) {
			one.Variants = append(one.Variants, kindOf(variant))
		}
		list = append(list, one)
	}
	return list
}

func examplesOf(described node) (list []example) {
	if one := described.at("example"); one.is() {
		list = append(list, example{"", exampleText(one)})
	}
	for name, one := range described.at("examples").members() {
		list = append(list, example{name, exampleText(one.at("value"))})
	}
	return list
}

// exampleText is an example as it goes over the wire: text is not quoted.
func exampleText(one node) string {
	if text := one.text(); text != "" && one.yaml.ShortTag() == "!!str" {
		return text
	}
	return one.asJSON()
}

func schemaOf(name string, schema node) schemaView {
	one := schemaView{Name: name, Notes: paragraphs(schema.at("description").text()), Fields: fieldsOf(schema)}
	for _, variant := range variants(schema) {
		one.Variants = append(one.Variants, kindOf(variant))
	}
	if !structured(schema) {
		one.Kind = kindOf(schema)
	}
	return one
}
