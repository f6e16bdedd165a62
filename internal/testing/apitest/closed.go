package apitest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Closed returns a document whose answers have no field and no word that the document does not
// list. The published document leaves answers open, so that clients made from it take the answers
// of later versions.
func Closed(text []byte) ([]byte, error) {
	c := closing{done: map[string]bool{}}
	if err := yaml.Unmarshal(text, &c.root); err != nil {
		return nil, fmt.Errorf("apitest: %w", err)
	}
	c.words(c.root)
	paths, _ := c.root["paths"].(map[string]any)
	for _, item := range paths {
		operations, _ := item.(map[string]any)
		for _, operation := range operations {
			described, _ := operation.(map[string]any)
			responses, _ := described["responses"].(map[string]any)
			for _, response := range responses {
				c.response(response)
			}
		}
	}
	closed, err := yaml.Marshal(c.root)
	if err != nil {
		return nil, fmt.Errorf("apitest: %w", err)
	}
	return closed, nil
}

type closing struct {
	root map[string]any
	done map[string]bool // references
}

// words makes each open list of words one of all words.
func (c *closing) words(part any) {
	switch part := part.(type) {
	case map[string]any:
		if words, open := part["x-extensible-enum"]; open {
			part["enum"] = words
		}
		for _, member := range part {
			c.words(member)
		}
	case []any:
		for _, item := range part {
			c.words(item)
		}
	}
}

func (c *closing) response(part any) {
	response, _ := c.target(part)
	content, _ := response["content"].(map[string]any)
	for _, media := range content {
		described, _ := media.(map[string]any)
		c.value(described["schema"])
	}
}

// target returns a part of the document, or the part that it refers to. The second result reports
// whether a reference led there before.
func (c *closing) target(part any) (target map[string]any, before bool) {
	target, _ = part.(map[string]any)
	reference, refers := target["$ref"].(string)
	if !refers {
		return target, false
	}
	before = c.done[reference]
	c.done[reference] = true
	target = c.root
	for name := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		target, _ = target[name].(map[string]any)
	}
	return target, before
}

// value closes the schema of a whole value: at the place that refers to it, because another schema
// may be made of the same one and more.
func (c *closing) value(part any) {
	schema, _ := part.(map[string]any)
	target, before := c.target(part)
	if target == nil {
		return
	}
	if target["properties"] != nil || target["allOf"] != nil {
		schema["unevaluatedProperties"] = false
	}
	if !before {
		c.members(target)
	}
}

// members closes the values that a value is made of.
func (c *closing) members(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for _, property := range properties {
		c.value(property)
	}
	c.value(schema["items"])
	c.value(schema["additionalProperties"])
	for _, one := range list(schema["oneOf"]) {
		c.value(one)
	}
	for _, one := range list(schema["allOf"]) {
		if target, before := c.target(one); !before {
			c.members(target)
		}
	}
}

func list(part any) []any {
	items, _ := part.([]any)
	return items
}
