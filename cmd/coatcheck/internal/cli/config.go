package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

func (p *program) configCommand() *cobra.Command {
	var below []*cobra.Command
	add := func(use, short string, do func(*config.Sources) error, check bool) {
		sub := p.configOfService(use, short, do, check)
		sub.AddCommand(p.configOfService("serve", short+" of the service", do, check),
			p.configOfGateway("gateway", short+" of the gateway", do, check))
		sub.Example = "  coatcheck config " + use + " --config coatcheck.yaml"
		for _, of := range sub.Commands() {
			of.Example = "  coatcheck config " + use + " " + of.Name() + " --config coatcheck.yaml"
		}
		below = append(below, sub)
	}
	add("check", "Find every fault of the configuration", p.configCheck, true)
	add("print", "Print the configuration in force as YAML, with where each value comes from", p.configPrint, true)
	add("env", "List every setting: flag, variable, default, unit", p.configEnv, false)
	return group("config", "Check and show the configuration", "", below...)
}

func (p *program) configOfService(use, short string, do func(*config.Sources) error, check bool) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: noArgs}
	l := config.BindService(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := p.complete(c, l); err != nil && check {
			return err
		}
		return do(l)
	}
	return command
}

func (p *program) configOfGateway(use, short string, do func(*config.Sources) error, check bool) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: noArgs}
	l := &config.Sources{}
	c := &config.Gateway{Service: &l.Service}
	l.Bind(command.Flags(), nil, config.GatewaySettings(c))
	command.RunE = func(cc *cobra.Command, _ []string) error {
		loaded := l.Load(cc.Flags(), p.getenv)
		_, err := c.Check(false)
		if err := errors.Join(loaded, c.CheckTogether(), err); err != nil && check {
			return configError(err)
		}
		return do(l)
	}
	return command
}

// configError makes the faults of a configuration one usage error, a line each.
func configError(err error) error {
	return usageError{fmt.Errorf("the configuration has faults:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))}
}

func (p *program) configCheck(*config.Sources) error {
	return p.print(map[string]bool{"ok": true}, "The configuration is in order.\n")
}

type shownSetting struct {
	Name     string `json:"name"`
	Flag     string `json:"flag"`
	Variable string `json:"variable"`
	Value    string `json:"value"`
	Source   string `json:"source,omitempty"`
	Unit     string `json:"unit"`
	Reload   bool   `json:"reload"` // whether a new value in the file is taken on SIGHUP
	Help     string `json:"help"`
}

// shownSettings is what --json prints of them.
type shownSettings struct {
	Settings []shownSetting `json:"settings"`
}

func shown(s *config.Setting) shownSetting {
	value := s.Value
	if s.Redact != nil {
		value = s.Redact(value)
	}
	return shownSetting{Name: s.Name, Flag: "--" + s.Name, Variable: s.Variable(), Value: value, Source: s.Source, Unit: s.Unit,
		Reload: s.Hot, Help: s.Help}
}

func (p *program) configPrint(l *config.Sources) error {
	var list []shownSetting
	var people strings.Builder
	for _, s := range l.Table {
		line := shown(s)
		list = append(list, line)
		fmt.Fprintf(&people, "%s: %q # %s\n", line.Name, line.Value, line.Source)
	}
	return p.print(shownSettings{list}, people.String())
}

func (p *program) configEnv(l *config.Sources) error {
	var list []shownSetting
	people := tabular("FLAG\tVARIABLE\tDEFAULT\tUNIT\tSIGHUP\tMEANING", func(line func(...string)) {
		for _, s := range l.Table {
			one := shown(s)
			one.Value, one.Source = s.Unset, ""
			list = append(list, one)
			line(one.Flag, one.Variable, one.Value, one.Unit, reload(s.Hot), one.Help)
		}
	})
	people += "\nA file given with --config (or COATCHECK_CONFIG) takes the flags' names without the dashes in front.\n"
	return p.print(shownSettings{list}, people)
}

func reload(hot bool) string {
	if hot {
		return "reload"
	}
	return "restart"
}

// loaded has a command run once its settings were read.
func (p *program) loaded(command *cobra.Command, l *config.Sources, do func(*cobra.Command, []string) error) *cobra.Command {
	command.RunE = func(c *cobra.Command, args []string) error {
		if err := l.Load(c.Flags(), p.getenv); err != nil {
			return configError(err)
		}
		return do(c, args)
	}
	return command
}

// complete loads the configuration and checks its parts together. The error holds every fault.
func (p *program) complete(c *cobra.Command, l *config.Sources) error {
	loaded := l.Load(c.Flags(), p.getenv)
	if err := errors.Join(loaded, l.Service.CheckStore(), l.Service.CheckAccess()); err != nil {
		return configError(err)
	}
	return nil
}
