package stable

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// httpOf are the promises of an OpenAPI document: each method and path, what a request may have
// and may leave out, and each answer with its fields and which of them are always there. The
// names of operations and schemas, of which generators make names, are promises too.
func httpOf(document string) (promises, error) {
	d := &openAPI{found: promises{}}
	if err := yaml.Unmarshal([]byte(document), &d.root); err != nil {
		return nil, err
	}
	paths, _ := d.root["paths"].(object)
	for path, item := range paths {
		shared := d.object(item)
		for _, method := range []string{"get", "put", "post", "delete", "head", "patch"} {
			if operation := d.object(shared[method]); operation != nil {
				d.operation(strings.ToUpper(method)+" "+path, shared, operation)
			}
		}
	}
	components, _ := d.root["components"].(object)
	for name := range d.object(components["schemas"]) {
		d.add("schema %s", name)
	}
	for _, code := range d.wordsOf("ProblemCode") {
		d.add("problem %v", code)
	}
	return d.found, nil
}

type object = map[string]any

// openAPI is an OpenAPI document that is being read.
type openAPI struct {
	root  object
	found promises
}

func (d *openAPI) add(form string, args ...any) { d.found[fmt.Sprintf(form, args...)] = true }

// object is a part of the document, or what it refers to; nil if there is none.
func (d *openAPI) object(part any) object {
	is, _ := part.(object)
	for range 10 {
		name, refers := is["$ref"].(string)
		if !refers {
			break
		}
		is = d.root
		for step := range strings.SplitSeq(strings.TrimPrefix(name, "#/"), "/") {
			is, _ = is[step].(object)
		}
	}
	return is
}

// wordsOf lists the words of a schema, in a closed list or, since 1.0.0-rc.2, in an open one.
func (d *openAPI) wordsOf(name string) []any {
	components, _ := d.root["components"].(object)
	schemas, _ := components["schemas"].(object)
	schema := d.object(schemas[name])
	closed, _ := schema["enum"].([]any)
	open, _ := schema["x-extensible-enum"].([]any)
	return append(closed, open...)
}

func (d *openAPI) operation(name string, shared, operation object) {
	d.add("%s", name)
	d.add("%s: operationId %v", name, operation["operationId"])
	for _, owner := range []object{shared, operation} {
		list, _ := owner["parameters"].([]any)
		for _, one := range list {
			d.parameter(name, d.object(one))
		}
	}
	body := d.object(operation["requestBody"])
	if body == nil || body["required"] != true {
		d.add("%s: may have no body", name)
	}
	for media, content := range d.object(body["content"]) {
		d.request(name+": body", d.object(d.object(content)["schema"]), 0)
		d.add("%s: body as %s", name, media)
	}
	for status, answer := range d.object(operation["responses"]) {
		where := name + ": " + status
		d.add("%s", where)
		of := d.object(answer)
		for header := range d.object(of["headers"]) {
			d.add("%s header %s", where, header)
		}
		for media, content := range d.object(of["content"]) {
			d.add("%s as %s", where, media)
			if strings.HasSuffix(media, "json") && media != "application/problem+json" {
				d.answer(where, d.object(d.object(content)["schema"]), 0)
			}
		}
	}
}

func (d *openAPI) parameter(name string, p object) {
	where := fmt.Sprintf("%s: %v %v", name, p["in"], p["name"])
	d.add("%s", where)
	if p["required"] != true {
		d.add("%s may be left out", where)
	}
	d.values(where, d.object(p["schema"]))
}

const deepest = 6 // fields within fields

// request adds what a body may have, and may lack.
func (d *openAPI) request(where string, schema object, depth int) {
	d.each(where, schema, depth, func(field string, of object, required bool) {
		d.add("%s", field)
		if !required {
			d.add("%s may be left out", field)
		}
		d.values(field, of)
		d.request(field, of, depth+1)
	})
}

// answer adds the fields of an answer, and which of them are always there.
func (d *openAPI) answer(where string, schema object, depth int) {
	d.each(where, schema, depth, func(field string, of object, required bool) {
		d.add("%s", field)
		if required {
			d.add("%s is always there", field)
		}
		if kind := kindOf(of); kind != "" {
			d.add("%s is %s", field, kind)
		}
		d.answer(field, of, depth+1)
	})
}

// each visits the fields of a schema, of those that it is made of, and of the elements of a list.
func (d *openAPI) each(where string, schema object, depth int, visit func(field string, of object, required bool)) {
	if depth > deepest {
		return
	}
	required, _ := schema["required"].([]any)
	for name, of := range d.object(schema["properties"]) {
		visit(where+" "+name, d.object(of), slices.Contains(required, any(name)))
	}
	if items := d.object(schema["items"]); items != nil {
		d.each(where+" []", items, depth+1, visit)
	}
	if more := d.object(schema["additionalProperties"]); more != nil {
		d.each(where+" {}", more, depth+1, visit)
	}
	for _, way := range []string{"allOf", "oneOf", "anyOf"} {
		list, _ := schema[way].([]any)
		for _, one := range list {
			d.each(where, d.object(one), depth+1, visit)
		}
	}
}

// values adds the kind of a request's value, and the words that it may have.
func (d *openAPI) values(where string, schema object) {
	if kind := kindOf(schema); kind != "" {
		d.add("%s is %s", where, kind)
	}
	words, _ := schema["enum"].([]any)
	for _, word := range words {
		d.add("%s may be %v", where, word)
	}
}

// kindOf is the type of a schema, with more than one sorted.
func kindOf(schema object) string {
	switch kind := schema["type"].(type) {
	case string:
		return kind
	case []any:
		words := map[string]bool{}
		for _, word := range kind {
			words[fmt.Sprint(word)] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(words)), " or ")
	}
	return ""
}
