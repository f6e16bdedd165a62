// Package yamlfile reads YAML files that people write, and reports their faults with the lines.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ErrSyntax means that a file is not YAML. It comes with the parser's words, which can quote it.
var ErrSyntax = errors.New("not YAML")

// ErrEmpty means that there is nothing in a file, or comments alone.
var ErrEmpty = errors.New("is empty")

// Map reads a file that is one YAML map. Errors call the file by its kind, such as "routes file",
// and name the fields that belong into it.
func Map(text []byte, kind, fields string) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var whole, more yaml.Node
	switch err := decoder.Decode(&whole); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the %s %w", kind, ErrEmpty)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("a %s is one YAML document, and nothing after it", kind)
	}
	if len(whole.Content) != 1 || whole.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("a %s is a YAML map with the %s", kind, fields)
	}
	return whole.Content[0], nil
}

// Faults are what is wrong with a file. The zero value has none.
type Faults []fault

type fault struct {
	line int
	text string
}

// Addf adds a fault in a line.
func (f *Faults) Addf(line int, format string, args ...any) {
	*f = append(*f, fault{line, fmt.Sprintf(format, args...)})
}

// Err makes one error of all faults, in the order of their lines, each after the name of the file,
// which can be ""; nil if there are none.
func (f *Faults) Err(file string) error {
	slices.SortStableFunc(*f, func(a, b fault) int { return a.line - b.line })
	var all []error
	for _, one := range *f {
		all = append(all, errors.New(strings.TrimLeft(fmt.Sprintf("%s line %d: %s", file, one.line, one.text), " ")))
	}
	return errors.Join(all...)
}
