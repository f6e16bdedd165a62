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
	Table   []*Setting            // settings of a connection, the store and the process
	flags   map[string]*FlagValue // what the command line said of those
	File    string

	arguments []*FlagValue // of one call: the command line alone says them

	line   *pflag.FlagSet // the command line and the environment that were read last
	getenv func(string) string
}

// BindService adds every setting of the service to a command's flags.
func BindService(flags *pflag.FlagSet) *Sources {
	l := &Sources{}
	l.Bind(flags, nil, ServiceSettings(&l.Service))
	return l
}

// Bind adds the arguments of one call and the settings of a table to a command's flags. Only
// settings have variables, and stand in the file. An argument can have the name of a setting, which
// has no flag then. All are read as text and parsed later, so that all faults can be reported
// together.
func (l *Sources) Bind(flags *pflag.FlagSet, arguments, table []*Setting) {
	l.Table, l.flags = table, map[string]*FlagValue{}
	flags.SortFlags = false // help has them in the order of the table
	for _, s := range arguments {
		l.arguments = append(l.arguments, addFlag(flags, s, true))
	}
	for _, s := range l.Table {
		if l.argument(s.Name) == nil {
			l.flags[s.Name] = addFlag(flags, s, false)
		}
	}
	flags.StringVar(&l.File, "config", "", "a YAML `file` with the names of the flags that have a heading here")
}

func addFlag(flags *pflag.FlagSet, s *Setting, argument bool) *FlagValue {
	s.Unset = s.Value
	value := &FlagValue{Setting: s, Argument: argument, text: s.Value}
	if flag := flags.VarPF(value, s.Name, "", s.Help); s.Toggle {
		flag.NoOptDefVal = "true"
	}
	return value
}

// argument returns the argument of a name; nil if there is none.
func (l *Sources) argument(name string) *FlagValue {
	if i := slices.IndexFunc(l.arguments, func(v *FlagValue) bool { return v.Setting.Name == name }); i >= 0 {
		return l.arguments[i]
	}
	return nil
}

// Load finds every setting's value and checks them all. The error holds every fault.
func (l *Sources) Load(flags *pflag.FlagSet, getenv func(string) string) error {
	l.line, l.getenv = flags, getenv
	if l.File == "" {
		l.File = getenv(Variables + "CONFIG")
	}
	fromFile, faults := l.read()
	take := func(s *Setting, said *FlagValue) {
		if said != nil && flags.Changed(s.Name) {
			s.Value, s.Source = said.text, "flag"
		}
		if err := s.Parse(s.Value); err != nil {
			faults = append(faults, fmt.Errorf("%s (%s): %w", s.Name, s.origin(l.File), err))
		}
	}
	for _, argument := range l.arguments {
		argument.Setting.Source = "default"
		take(argument.Setting, argument)
	}
	for _, s := range l.Table {
		s.Source = "default"
		if found, ok := fromFile[s.Name]; ok {
			s.Value, s.Source, s.Line = found.value, "file", found.line
		}
		if value := getenv(s.Variable()); value != "" {
			s.Value, s.Source = value, "environment"
		}
		take(s, l.flags[s.Name])
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
		setting := l.inTable(key.Value)
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

// Find returns the argument or, if there is none, the setting of a name; nil if there is neither.
func (l *Sources) Find(name string) *Setting {
	if argument := l.argument(name); argument != nil {
		return argument.Setting
	}
	return l.inTable(name)
}

func (l *Sources) inTable(name string) *Setting {
	if i := slices.IndexFunc(l.Table, func(s *Setting) bool { return s.Name == name }); i >= 0 {
		return l.Table[i]
	}
	return nil
}

// meant suggests a setting with nearly that name; "" if there is none.
func (l *Sources) meant(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	if l.argument(name) != nil {
		return IsArgument(name)
	}
	all := make([]string, len(l.Table))
	for i, s := range l.Table {
		all[i] = s.Name
	}
	nearest := names.Nearest(name, all)
	if nearest == "" {
		return ""
	}
	return "; is " + nearest + " meant?"
}

// IsArgument says of the name of a flag without a setting where its value comes from.
func IsArgument(flag string) string {
	return ": it is an argument of one call, which the flag --" + flag + " says"
}

// Again reads the same sources once more, into a table of another configuration.
func (l *Sources) Again(other *Sources, table []*Setting) error {
	other.Table, other.flags, other.File = table, l.flags, l.File
	return other.Load(l.line, l.getenv)
}

// FlagValue is a setting as a flag. It is read as text, and parsed with all others.
type FlagValue struct {
	Setting  *Setting
	Argument bool // of one call: it has no variable, and stands in no file
	text     string
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
