package yamlfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// MaxList is how many entries a list of words may have.
const MaxList = 100

// Value reads the value of a field. What is wrong with it becomes a fault, after the field's name.
type Value func(found *Faults, name string, at *yaml.Node)

// Fields are the fields that a map may have.
type Fields map[string]Value

// Read reads a map. A fault does not tell the name of an unknown field: a secret may stand there.
func (f Fields) Read(found *Faults, at *yaml.Node) {
	if at.Kind != yaml.MappingNode {
		found.Addf(at.Line, "a map of fields belongs here: %s", f.names())
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(at.Content); i += 2 {
		name, value := at.Content[i], at.Content[i+1]
		read, isKnown := f[name.Value]
		switch {
		case !isKnown || name.Kind != yaml.ScalarNode:
			found.Addf(name.Line, "unknown field; here may be %s", f.names())
		case seen[name.Value]:
			found.Addf(name.Line, "%s: given more than once", name.Value)
		default:
			read(found, name.Value, value)
		}
		seen[name.Value] = true
	}
}

func (f Fields) names() string { return strings.Join(slices.Sorted(maps.Keys(f)), ", ") }

// Checked reads a map as the value of a field, and checks it if it could be read.
func (f Fields) Checked(check func() error) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		var inner Faults
		f.Read(&inner, at)
		if len(inner) == 0 {
			if err := check(); err != nil {
				inner.Addf(at.Line, "%s", err)
			}
		}
		for _, one := range inner {
			found.Addf(one.line, "%s: %s", name, one.text)
		}
	}
}

// LineOf is the line of a map's field, or of the map if it lacks the field.
func LineOf(at *yaml.Node, field string) int {
	for i := 0; i+1 < len(at.Content); i += 2 {
		if at.Content[i].Value == field {
			return at.Content[i].Line
		}
	}
	return at.Line
}

// Each reads a list of up to most entries; null is none.
func Each(most int, read func(found *Faults, entry *yaml.Node)) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		switch {
		case at.Kind == yaml.ScalarNode && at.Tag == "!!null":
		case at.Kind != yaml.SequenceNode || len(at.Content) > most:
			found.Addf(at.Line, "%s: a list of up to %d entries", name, most)
		default:
			for _, entry := range at.Content {
				read(found, entry)
			}
		}
	}
}

// Parsed reads one value, whatever YAML takes it for.
func Parsed(read func(text []byte) error) Value {
	return scalar(func(at *yaml.Node) error {
		if at.Tag == "!!null" {
			return errors.New("one value belongs here")
		}
		return read([]byte(at.Value))
	}, "one value belongs here")
}

// scalar reads a value that is neither a list nor a map, which has the fault otherwise.
func scalar(read func(at *yaml.Node) error, otherwise string) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		err := errors.New(otherwise)
		if at.Kind == yaml.ScalarNode {
			err = read(at)
		}
		if err != nil {
			found.Addf(at.Line, "%s: %s", name, err)
		}
	}
}

// Text reads a text that is not empty.
func Text(into *string) Value {
	const rule = "a text belongs here"
	return scalar(func(at *yaml.Node) error {
		if at.Tag != "!!str" || at.Value == "" {
			return errors.New(rule)
		}
		*into = at.Value
		return nil
	}, rule)
}

// Choice reads one of a few words.
func Choice[T ~string](into *T, from ...T) Value {
	rule := fmt.Sprintf("one of %v", from)
	return scalar(func(at *yaml.Node) error {
		if !slices.Contains(from, T(at.Value)) {
			return errors.New(rule)
		}
		*into = T(at.Value)
		return nil
	}, rule)
}

// Bool reads true or false, in no other spelling.
func Bool(set func(is bool)) Value {
	const rule = "true or false"
	return scalar(func(at *yaml.Node) error {
		if at.Tag != "!!bool" || at.Value != "true" && at.Value != "false" {
			return errors.New(rule)
		}
		set(at.Value == "true")
		return nil
	}, rule)
}

// Whole reads a whole number as people write it: no other base, no underscores, no fraction. unit
// is what it counts.
func Whole[T ~int | ~int64](into *T, least, most int64, unit string) Value {
	rule := fmt.Sprintf("a whole number from %d to %d, in %s", least, most, unit)
	return scalar(func(at *yaml.Node) error {
		n, err := strconv.ParseInt(at.Value, 10, 64)
		if err != nil || at.Tag != "!!int" || strconv.FormatInt(n, 10) != at.Value || n < least || n > most {
			return errors.New(rule)
		}
		*into = T(n)
		return nil
	}, rule)
}

// Millis reads a whole number of milliseconds.
func Millis(into *time.Duration, least, most time.Duration) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		n, before := int64(0), len(*found)
		Whole(&n, least.Milliseconds(), most.Milliseconds(), "milliseconds")(found, name, at)
		if len(*found) == before {
			*into = time.Duration(n) * time.Millisecond
		}
	}
}

// Words reads a word, or a list of words.
func Words(into *[]string) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		switch {
		case at.Kind == yaml.SequenceNode:
			List(into, 1)(found, name, at)
		case at.Kind != yaml.ScalarNode || at.Tag != "!!str" || at.Value == "":
			found.Addf(at.Line, "%s: a word, or a list of 1 to %d words", name, MaxList)
		default:
			*into = []string{at.Value}
		}
	}
}

// List reads a list of at least so many words. A number is a word as well.
func List(into *[]string, least int) Value {
	return func(found *Faults, name string, at *yaml.Node) {
		if at.Kind != yaml.SequenceNode || len(at.Content) < least || len(at.Content) > MaxList {
			found.Addf(at.Line, "%s: a list of %d to %d entries", name, least, MaxList)
			return
		}
		*into = []string{}
		for _, entry := range at.Content {
			if entry.Kind != yaml.ScalarNode || entry.Tag != "!!str" && entry.Tag != "!!int" {
				found.Addf(entry.Line, "%s: every entry is one word", name)
				return
			}
			*into = append(*into, entry.Value)
		}
	}
}
