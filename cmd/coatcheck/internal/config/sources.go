package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Sources puts a configuration together: flag over environment over file over default.
type Sources struct {
	Service Service
	Table   []*Setting
	flags   map[string]*FlagValue // what the command line said
	File    string

	line   *pflag.FlagSet // the command line and the environment that were read last
	getenv func(string) string
}

// BindService adds every setting of the service to a command's flags.
func BindService(flags *pflag.FlagSet) *Sources {
	l := &Sources{}
	l.Bind(flags, ServiceSettings(&l.Service))
	return l
}

// Bind adds the settings of a table to a command's flags. They are read as text and parsed later,
// so that all faults can be reported together.
func (l *Sources) Bind(flags *pflag.FlagSet, table []*Setting) {
	l.Table, l.flags = table, map[string]*FlagValue{}
	flags.SortFlags = false // help has them in the order of the table
	for _, s := range l.Table {
		s.Unset = s.Value
		value := &FlagValue{Setting: s, text: s.Value}
		l.flags[s.Name] = value
		if flag := flags.VarPF(value, s.Name, "", s.Help); s.Toggle {
			flag.NoOptDefVal = "true"
		}
	}
	flags.StringVar(&l.File, "config", "", "a YAML `file` with the same names as the flags")
}

// Load finds every setting's value and checks them all. The error holds every fault.
func (l *Sources) Load(flags *pflag.FlagSet, getenv func(string) string) error {
	l.line, l.getenv = flags, getenv
	if l.File == "" {
		l.File = getenv(Variables + "CONFIG")
	}
	fromFile, faults := l.read()
	for _, s := range l.Table {
		s.Source = "default"
		if found, ok := fromFile[s.Name]; ok && !s.OnlyFlag {
			s.Value, s.Source, s.Line = found.value, "file", found.line
		}
		if value := getenv(s.Variable()); value != "" && !s.OnlyFlag {
			s.Value, s.Source = value, "environment"
		}
		if !s.NoFlag && flags.Changed(s.Name) {
			s.Value, s.Source = l.flags[s.Name].text, "flag"
		}
		if err := s.Parse(s.Value); err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %w", s.Name, s.origin(l.File), err))
		}
	}
	l.Service.derive()
	return errors.Join(faults...)
}

// origin names the place of the value for people.
func (s *Setting) origin(file string) string {
	switch s.Source {
	case "file":
		return fmt.Sprintf("%s line %d", file, s.Line)
	case "environment":
		return s.Variable()
	case "flag":
		return "--" + s.Name
	}
	return s.Source
}

// read reads the file, if there is one, as a flat map of names to values.
func (l *Sources) read() (map[string]written, []error) {
	if l.File == "" {
		return nil, nil
	}
	text, err := os.ReadFile(l.File)
	if err != nil {
		return nil, []error{fmt.Errorf("config file: %w", err)}
	}
	return l.parseFile(text)
}

// written is a value in the file, and where.
type written struct {
	value string
	line  int
}

// parseFile reads the file's values of known settings, and returns the rest as faults.
func (l *Sources) parseFile(text []byte) (values map[string]written, faults []error) {
	root, err := yamlfile.Map(text, "settings file", "flags' names")
	switch {
	case errors.Is(err, yamlfile.ErrEmpty):
		return nil, nil
	case err != nil:
		return nil, []error{fmt.Errorf("%s: %w", l.File, err)}
	}
	values = map[string]written{}
	faultf := func(node *yaml.Node, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s line %d: "+format, append([]any{l.File, node.Line}, args...)...))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		before, twice := values[key.Value]
		setting := l.Find(key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || setting == nil:
			faultf(key, "unknown setting %q%s", key.Value, l.meant(key.Value))
		case twice:
			faultf(key, "%s is set on line %d already", key.Value, before.line)
		case setting.Nested && (node.Kind == yaml.MappingNode || node.Kind == yaml.SequenceNode):
			text, err := yaml.Marshal(node)
			if err != nil {
				faultf(node, "%s: %w", key.Value, err)
			}
			values[key.Value] = written{string(text), node.Line}
		case node.Kind == yaml.SequenceNode:
			faultf(node, "%s takes one value; several have commas between them", key.Value)
		case node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null":
			faultf(node, "%s takes one value", key.Value)
		default:
			values[key.Value] = written{node.Value, node.Line}
		}
	}
	return values, faults
}

// Find returns the setting of a name; nil if the table has none.
func (l *Sources) Find(name string) *Setting {
	if i := slices.IndexFunc(l.Table, func(s *Setting) bool { return s.Name == name }); i >= 0 {
		return l.Table[i]
	}
	return nil
}

// meant suggests a setting with nearly that name; "" if there is none.
func (l *Sources) meant(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	all := make([]string, len(l.Table))
	for i, s := range l.Table {
		all[i] = s.Name
	}
	nearest := names.Nearest(name, all, max(2, len(name)/3))
	if nearest == "" {
		return ""
	}
	return "; is " + nearest + " meant?"
}

// Again reads the same sources once more, into a table of another configuration.
func (l *Sources) Again(other *Sources, table []*Setting) error {
	other.Table, other.flags, other.File = table, l.flags, l.File
	return other.Load(l.line, l.getenv)
}

// FlagValue is a setting as a flag. It is read as text, and parsed with all others.
type FlagValue struct {
	Setting *Setting
	text    string
}

// String is the text as it was given.
func (v *FlagValue) String() string { return v.text }

// Set takes the text as it is.
func (v *FlagValue) Set(text string) error {
	v.text = text
	return nil
}

// Type is the flag's kind of value in help.
func (v *FlagValue) Type() string {
	if v.Setting.Choices != nil {
		return strings.Join(v.Setting.Choices, "|")
	}
	// pflag counts bytes where it aligns columns
	return strings.ReplaceAll(cmp.Or(v.Setting.Kind, v.Setting.Unit), "…", "...")
}
