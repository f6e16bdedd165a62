package openapi_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/openapi"
)

// A client that was made from the document takes the fields and words of later versions; a field
// that the service does not know is refused.
func TestAnswersAreOpenAndRequestsAreClosed(t *testing.T) {
	answers, requests := seen{}, 0
	for _, item := range published(t).Paths.Map() {
		for _, o := range item.Operations() {
			for _, response := range o.Responses.Map() {
				for _, header := range response.Value.Headers {
					answers.add(header.Value.Schema)
				}
				answers.addAll(response.Value.Content)
			}
			if o.RequestBody == nil {
				continue
			}
			if media := o.RequestBody.Value.Content["application/json"]; media != nil {
				requests++
				if !closed(media.Schema.Value) {
					t.Errorf("the request of %s takes any other field, want none", o.OperationID)
				}
			}
		}
	}
	for schema, name := range answers {
		if closed(schema) || schema.Enum != nil || schema.Const != nil {
			t.Errorf("schema %s of an answer is closed, want it to take any other field and word", name)
		}
	}
	if len(answers) < 100 || requests < 20 {
		t.Errorf("%d schemas of answers and %d requests were looked at, want 100 and 20 at least", len(answers), requests)
	}
}

func closed(schema *openapi3.Schema) bool {
	return isFalse(schema.AdditionalProperties) || isFalse(schema.UnevaluatedProperties)
}

func isFalse(more openapi3.BoolSchema) bool { return more.Has != nil && !*more.Has }

// seen has the schemas that a walk met, with a name for each.
type seen map[*openapi3.Schema]string

func (s seen) addAll(content openapi3.Content) {
	for _, media := range content {
		s.add(media.Schema)
	}
}

func (s seen) add(ref *openapi3.SchemaRef) {
	if ref == nil || s[ref.Value] != "" {
		return
	}
	s[ref.Value] = ref.Ref + " " + ref.Value.Description
	for name, property := range ref.Value.Properties {
		s.add(property)
		if property.Ref == "" {
			s[property.Value] = ref.Ref + " " + name
		}
	}
	s.add(ref.Value.Items)
	for _, part := range slices.Concat(ref.Value.AllOf, ref.Value.OneOf) {
		s.add(part)
	}
}

// oapi-codegen and ogen make a type of each name, whatever section it stands in.
func TestNoNameStandsInTwoSections(t *testing.T) {
	c := published(t).Components
	sections := map[string][]string{}
	for section, names := range map[string]iter.Seq[string]{
		"schemas": maps.Keys(c.Schemas), "parameters": maps.Keys(c.Parameters), "headers": maps.Keys(c.Headers), "requestBodies": maps.Keys(c.RequestBodies),
		"responses": maps.Keys(c.Responses), "securitySchemes": maps.Keys(c.SecuritySchemes),
	} {
		for name := range names {
			sections[name] = append(sections[name], section)
		}
	}
	for name, in := range sections {
		if len(in) > 1 {
			t.Errorf("the name %s stands in %v, want one section", name, in)
		}
	}
}

func TestListsOfWordsHaveAType(t *testing.T) {
	var document map[string]any
	if err := yaml.Unmarshal(openapi.Document(), &document); err != nil {
		t.Fatalf("reading the document: %v", err)
	}
	if lists := untyped(t, "", document); lists < 50 {
		t.Errorf("only %d lists of words were looked at, want 50 at least", lists)
	}
}

// untyped reports the schemas within a part that have a list of words and no type. It returns how
// many have a list.
func untyped(t *testing.T, at string, part any) (lists int) {
	switch part := part.(type) {
	case []any:
		for i, item := range part {
			lists += untyped(t, fmt.Sprintf("%s/%d", at, i), item)
		}
	case map[string]any:
		if part["enum"] != nil || part["const"] != nil || part["x-extensible-enum"] != nil {
			lists++
			if part["type"] == nil {
				t.Errorf("%s has a list of words and no type", at)
			}
		}
		for name, member := range part {
			lists += untyped(t, at+"/"+name, member)
		}
	}
	return lists
}
