package openapi

import (
	"fmt"
	"slices"
	"strings"
)

// field is a member of an object, or one of the values that a schema describes, as the page shows
// it.
type field struct {
	Name     string
	Required bool
	Kind     kind
	Notes    []paragraph
}

// kind says what a value is: words, and the schema that has more to tell.
type kind struct {
	Words  string // such as integer, 1 to 1000
	Schema string // name of the schema that it refers to; "" = none
}

// fieldsOf lists the members that a schema describes: those of what it refers to first.
func fieldsOf(schema node) (list []field) {
	target, name := schema.resolved()
	if name != "" {
		list = fieldsOf(target)
	}
	required := append(schema.at("required").texts(), target.at("required").texts()...)
	if name != "" {
		target = schema // whose own members come after those of its reference
	}
	for part := range target.at("allOf").items() {
		list = append(list, fieldsOf(part)...)
	}
	for name, member := range target.at("properties").members() {
		list = slices.DeleteFunc(list, func(f field) bool { return f.Name == name && f.Kind.Schema != "" })
		list = append(list, field{Name: name, Required: slices.Contains(required, name), Kind: kindOf(member), Notes: paragraphs(notes(member))})
	}
	return list
}

// notes is what a schema says of itself, or what it refers to says.
func notes(schema node) string {
	if said := schema.at("description").text(); said != "" {
		return said
	}
	target, _ := schema.resolved()
	return target.at("description").text()
}

// variants are the schemas of which a value has one.
func variants(schema node) (list []node) {
	target, _ := schema.resolved()
	for one := range target.at("oneOf").items() {
		list = append(list, one)
	}
	return list
}

// structured are the schemas that have a place of their own on the page; the others are said in
// words.
func structured(schema node) bool {
	return schema.at("properties").is() || schema.at("oneOf").is() || schema.at("allOf").is()
}

func kindOf(schema node) kind {
	target, name := schema.resolved()
	if name != "" && structured(target) {
		return kind{Words: "object", Schema: name}
	}
	if items := target.at("items"); items.is() {
		of := kindOf(items)
		of.Words = join("array", bounds(target, "minItems", "maxItems", "")) + " of " + of.Words
		return of
	}
	words := typeWords(target)
	if fallback := schema.at("default"); fallback.is() {
		words = append(words, "default "+fallback.asJSON())
	} else if fallback := target.at("default"); fallback.is() {
		words = append(words, "default "+fallback.asJSON())
	}
	return kind{Words: strings.Join(words, ", ")}
}

// typeWords says the type of a scalar, and its bounds.
func typeWords(schema node) (words []string) {
	if constant := schema.at("const"); constant.is() {
		return []string{"always " + constant.asJSON()}
	}
	if choices := schema.at("enum"); choices.is() {
		return []string{"one of " + oneOf(choices)}
	}
	if choices := schema.at("x-extensible-enum"); choices.is() {
		return []string{"one of " + oneOf(choices) + " (later versions may have more)"}
	}
	types := slices.DeleteFunc(schema.at("type").texts(), func(name string) bool { return name == "null" })
	words = append(words, strings.Join(types, " or "))
	for _, part := range []string{
		bounds(schema, "minimum", "maximum", ""), bounds(schema, "minLength", "maxLength", " characters"), schema.at("format").text(), schema.at("contentEncoding").text(),
	} {
		if part != "" {
			words = append(words, part)
		}
	}
	if pattern := schema.at("pattern").text(); pattern != "" {
		words = append(words, "as "+pattern)
	}
	return words
}

// oneOf lists values, without null and "", which are as good as left out.
func oneOf(choices node) string {
	var list []string
	for choice := range choices.items() {
		if text := choice.asJSON(); text != "null" && text != `""` {
			list = append(list, text)
		}
	}
	return strings.Join(list, ", ")
}

func bounds(schema node, least, most, unit string) string {
	from, to := schema.at(least).text(), schema.at(most).text()
	switch {
	case from != "" && to != "":
		return fmt.Sprintf("%s to %s%s", from, to, unit)
	case from != "":
		return fmt.Sprintf("from %s%s", from, unit)
	case to != "":
		return fmt.Sprintf("up to %s%s", to, unit)
	}
	return ""
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}
