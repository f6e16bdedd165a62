package openapi

import (
	"fmt"
	"iter"
	"strings"

	"go.yaml.in/yaml/v4"
)

// node is a value of the document, with its members in the order in which they are written. The
// zero value is one that is not there; looking into it gives more of those.
type node struct {
	yaml *yaml.Node
	root *yaml.Node
}

func read(text []byte) (node, error) {
	var whole yaml.Node
	if err := yaml.Unmarshal(text, &whole); err != nil {
		return node{}, fmt.Errorf("openapi: %w", err)
	}
	if len(whole.Content) != 1 {
		return node{}, fmt.Errorf("openapi: one document belongs there, not %d", len(whole.Content))
	}
	return node{whole.Content[0], whole.Content[0]}, nil
}

func (n node) is() bool { return n.yaml != nil }

// members are those of a mapping.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		if !n.is() || n.yaml.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.yaml.Content); i += 2 {
			if !yield(n.yaml.Content[i].Value, node{n.yaml.Content[i+1], n.root}) {
				return
			}
		}
	}
}

// items are those of a sequence.
func (n node) items() iter.Seq[node] {
	return func(yield func(node) bool) {
		if !n.is() || n.yaml.Kind != yaml.SequenceNode {
			return
		}
		for _, item := range n.yaml.Content {
			if !yield(node{item, n.root}) {
				return
			}
		}
	}
}

// at is a member, by the names on the way to it.
func (n node) at(names ...string) node {
	for _, name := range names {
		found := node{root: n.root}
		for key, member := range n.members() {
			if key == name {
				found = member
			}
		}
		n = found
	}
	return n
}

// text is what a scalar says; "" of what is none.
func (n node) text() string {
	if !n.is() || n.yaml.Kind != yaml.ScalarNode {
		return ""
	}
	return strings.TrimSpace(n.yaml.Value)
}

// texts are those of a sequence, or the one of a scalar.
func (n node) texts() (list []string) {
	for item := range n.items() {
		list = append(list, item.text())
	}
	if n.text() != "" {
		list = append(list, n.text())
	}
	return list
}

// resolved is what a $ref refers to, and its name, such as TokenIssued; what is no $ref is itself,
// without a name.
func (n node) resolved() (target node, name string) {
	reference := n.at("$ref").text()
	if reference == "" {
		return n, ""
	}
	path := strings.Split(strings.TrimPrefix(reference, "#/"), "/")
	return node{n.root, n.root}.at(path...), path[len(path)-1]
}
