package openapi

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v4"
)

// asJSON writes an example as JSON, its members in the order of the document.
func (n node) asJSON() string {
	var text strings.Builder
	n.write(&text, "")
	return text.String()
}

func (n node) write(text *strings.Builder, indent string) {
	switch {
	case !n.is():
		text.WriteString("null")
	case n.yaml.Kind == yaml.MappingNode:
		n.writeObject(text, indent)
	case n.yaml.Kind == yaml.SequenceNode:
		n.writeArray(text, indent)
	case n.yaml.ShortTag() == "!!str" || n.yaml.ShortTag() == "!!timestamp":
		text.WriteString(quoted(n.yaml.Value))
	default:
		text.WriteString(n.yaml.Value) // numbers, booleans and null are written alike
	}
}

func (n node) writeObject(text *strings.Builder, indent string) {
	between, end := "{", "{}"
	for name, member := range n.members() {
		text.WriteString(between + "\n" + indent + "  " + quoted(name) + ": ")
		member.write(text, indent+"  ")
		between, end = ",", "\n"+indent+"}"
	}
	text.WriteString(end)
}

func (n node) writeArray(text *strings.Builder, indent string) {
	between, end := "[", "[]"
	for item := range n.items() {
		text.WriteString(between + "\n" + indent + "  ")
		item.write(text, indent+"  ")
		between, end = ",", "\n"+indent+"]"
	}
	text.WriteString(end)
}

func quoted(text string) string {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err) // a string can always be written
	}
	return strings.TrimSpace(quoted.String())
}
