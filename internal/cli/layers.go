package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// layers puts a configuration together: flag over environment over file over default.
type layers struct {
	config config
	table  []*setting
	flags  map[string]*flagValue // what the command line said
	file   string

	line   *pflag.FlagSet // the command line and the environment that were read last
	getenv func(string) string
}

// bindFlags adds every setting of the service to a command's flags.
func bindFlags(flags *pflag.FlagSet) *layers {
	l := &layers{}
	l.bind(flags, settings(&l.config))
	return l
}

// bind adds the settings of a table to a command's flags. They are read as text and parsed later,
// so that all faults can be told together.
func (l *layers) bind(flags *pflag.FlagSet, table []*setting) {
	l.table, l.flags = table, map[string]*flagValue{}
	flags.SortFlags = false // help has them in the order of the table
	for _, s := range l.table {
		s.unset = s.value
		value := &flagValue{setting: s, text: s.value}
		l.flags[s.name] = value
		if flag := flags.VarPF(value, s.name, "", s.help); s.toggle {
			flag.NoOptDefVal = "true"
		}
	}
	flags.StringVar(&l.file, "config", "", "a YAML file with the same names as the flags")
}

// load finds every setting's value and checks them all. The error holds every fault.
func (l *layers) load(flags *pflag.FlagSet, getenv func(string) string) error {
	l.line, l.getenv = flags, getenv
	if l.file == "" {
		l.file = getenv("COATCHECK_CONFIG")
	}
	fromFile, faults := l.read()
	for _, s := range l.table {
		s.source = "default"
		if found, ok := fromFile[s.name]; ok {
			s.value, s.source, s.line = found.value, "file", found.line
		}
		if value := getenv(s.variable()); value != "" {
			s.value, s.source = value, "environment"
		}
		if flags.Changed(s.name) {
			s.value, s.source = l.flags[s.name].text, "flag"
		}
		if err := s.parse(s.value); err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %w", s.name, s.origin(l.file), err))
		}
	}
	return errors.Join(faults...)
}

// origin says where a person finds the value.
func (s *setting) origin(file string) string {
	switch s.source {
	case "file":
		return fmt.Sprintf("%s line %d", file, s.line)
	case "environment":
		return s.variable()
	case "flag":
		return "--" + s.name
	}
	return s.source
}

// read reads the file, if there is one, as a flat map of names to values.
func (l *layers) read() (map[string]written, []error) {
	if l.file == "" {
		return nil, nil
	}
	bytes, err := os.ReadFile(l.file)
	if err != nil {
		return nil, []error{fmt.Errorf("config file: %w", err)}
	}
	return l.parseFile(bytes)
}

// written is a value in the file, and where.
type written struct {
	value string
	line  int
}

// parseFile takes what the file says of settings that there are, and tells the rest.
func (l *layers) parseFile(bytes []byte) (values map[string]written, faults []error) {
	var whole yaml.Node
	if err := yaml.Unmarshal(bytes, &whole); err != nil {
		return nil, []error{fmt.Errorf("%s: not a YAML map of settings: %w", l.file, err)}
	}
	if len(whole.Content) == 0 {
		return nil, nil // nothing, or comments alone
	}
	root := whole.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s line %d: not a YAML map of settings, such as listen: 127.0.0.1:8080", l.file, root.Line)}
	}
	values = map[string]written{}
	faultf := func(node *yaml.Node, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s line %d: "+format, append([]any{l.file, node.Line}, args...)...))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		before, twice := values[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !l.knows(key.Value):
			faultf(key, "unknown setting %q%s", key.Value, l.meant(key.Value))
		case twice:
			faultf(key, "%s is set on line %d already", key.Value, before.line)
		case node.Kind == yaml.MappingNode && l.nests(key.Value):
			text, err := yaml.Marshal(node)
			if err != nil {
				faultf(node, "%s: %w", key.Value, err)
			}
			values[key.Value] = written{string(text), node.Line}
		case node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null":
			faultf(node, "%s takes one value", key.Value)
		default:
			values[key.Value] = written{node.Value, node.Line}
		}
	}
	return values, faults
}

func (l *layers) knows(name string) bool {
	return slices.ContainsFunc(l.table, func(s *setting) bool { return s.name == name })
}

// nests reports whether a setting is a map in the file.
func (l *layers) nests(name string) bool {
	return slices.ContainsFunc(l.table, func(s *setting) bool { return s.name == name && s.nested })
}

// meant asks whether a setting of nearly that name was meant; "" if there is none.
func (l *layers) meant(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	nearest, least := "", 1+max(2, len(name)/3)
	for _, s := range l.table {
		if d := distance(name, s.name); d < least {
			nearest, least = s.name, d
		}
	}
	if nearest == "" {
		return ""
	}
	return "; is " + nearest + " meant?"
}

// distance is how many letters have to be put in, taken out or changed to make one name of another
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// again reads the same sources once more, into a table of another configuration.
func (l *layers) again(other *layers, table []*setting) error {
	other.table, other.flags, other.file = table, l.flags, l.file
	return other.load(l.line, l.getenv)
}
