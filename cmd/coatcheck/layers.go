package main

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
	flags  map[string]*string // what the command line said
	file   string
}

// bindFlags adds every setting of the service to a command's flags.
func bindFlags(flags *pflag.FlagSet) *layers {
	l := &layers{}
	l.bind(flags, settings(&l.config))
	return l
}

// bind adds the settings of a table to a command's flags. They are read as text and parsed later, so that all faults can be told together.
func (l *layers) bind(flags *pflag.FlagSet, table []*setting) {
	l.table, l.flags = table, map[string]*string{}
	for _, s := range l.table {
		l.flags[s.name] = flags.String(s.name, s.value, s.help)
		flag := flags.Lookup(s.name)
		if s.toggle {
			flag.NoOptDefVal = "true"
		}
	}
	flags.StringVar(&l.file, "config", "", "a YAML file with the same names as the flags")
}

// load finds every setting's value and checks them all. The error holds every fault.
func (l *layers) load(flags *pflag.FlagSet, getenv func(string) string) error {
	if l.file == "" {
		l.file = getenv("COATCHECK_CONFIG")
	}
	fromFile, faults := l.read()
	for _, s := range l.table {
		s.source = "default"
		if value, ok := fromFile[s.name]; ok {
			s.value, s.source = value, "file"
		}
		if value := getenv(s.variable()); value != "" {
			s.value, s.source = value, "environment"
		}
		if flags.Changed(s.name) {
			s.value, s.source = *l.flags[s.name], "flag"
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
		return file
	case "environment":
		return s.variable()
	case "flag":
		return "--" + s.name
	}
	return s.source
}

// read reads the file, if there is one, as a flat map of names to values.
func (l *layers) read() (map[string]string, []error) {
	if l.file == "" {
		return nil, nil
	}
	bytes, err := os.ReadFile(l.file)
	if err != nil {
		return nil, []error{fmt.Errorf("config file: %w", err)}
	}
	return l.parseFile(bytes)
}

func (l *layers) parseFile(bytes []byte) (values map[string]string, faults []error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(bytes, &nodes); err != nil {
		return nil, []error{fmt.Errorf("%s: not a YAML map of settings: %w", l.file, err)}
	}
	values = map[string]string{}
	for name, node := range nodes {
		known := slices.ContainsFunc(l.table, func(s *setting) bool { return s.name == name })
		switch {
		case !known:
			faults = append(faults, fmt.Errorf("%s line %d: unknown setting %q", l.file, node.Line, name))
		case node.Kind != yaml.ScalarNode || node.Tag == "!!null":
			faults = append(faults, fmt.Errorf("%s line %d: %s takes one value", l.file, node.Line, name))
		default:
			values[name] = node.Value
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return values, faults
}
