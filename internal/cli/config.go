package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) configCommand() *cobra.Command {
	command := &cobra.Command{Use: "config", Short: "Check and show the configuration", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		return c.Help()
	}}
	add := func(use, short string, do func(*layers) error, check bool) {
		sub := p.configOfService(use, short, do, check)
		sub.AddCommand(p.configOfService("serve", short+" of the service", do, check), p.configOfGateway("gateway", short+" of the gateway", do, check))
		command.AddCommand(sub)
	}
	add("check", "Find every fault of the configuration", p.configCheck, true)
	add("print", "Print the configuration in force as YAML, with where each value comes from", p.configPrint, true)
	add("env", "List every setting: flag, variable, default, unit", p.configEnv, false)
	return command
}

func (p *program) configOfService(use, short string, do func(*layers) error, check bool) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: noArgs}
	l := bindFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := l.complete(c, p); err != nil && check {
			return err
		}
		return do(l)
	}
	return command
}

func (p *program) configOfGateway(use, short string, do func(*layers) error, check bool) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: noArgs}
	l := &layers{}
	c := &gatewayConfig{config: &l.config}
	l.bind(command.Flags(), gatewaySettings(c))
	command.RunE = func(cc *cobra.Command, _ []string) error {
		loaded := l.load(cc.Flags(), p.getenv)
		_, err := c.check(false)
		if err := errors.Join(loaded, c.checkTogether(), err); err != nil && check {
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

// complete loads the configuration and checks what only its parts together can tell. The error
// holds every fault.
func (l *layers) complete(c *cobra.Command, p *program) error {
	loaded := l.load(c.Flags(), p.getenv)
	if err := errors.Join(loaded, l.config.store().Check(), l.config.checkAccess()); err != nil {
		return configError(err)
	}
	return nil
}

func (p *program) configCheck(*layers) error {
	return p.print(map[string]bool{"ok": true}, "The configuration is in order.\n")
}

// store is the part of the configuration that package redisstore takes.
func (c *config) store() redisstore.Config {
	return redisstore.Config{
		URL: c.redis, Prefix: c.prefix, Ack: int(c.ack), Restarts: redisstore.Restarts(c.restarts), Timeout: c.storeTimeout, DataDir: c.dataDir, MaxKeys: int(c.maxKeys), MaxBytes: c.maxBytes,
	}
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

func shown(s *setting) shownSetting {
	value := s.value
	if s.redact != nil {
		value = s.redact(value)
	}
	return shownSetting{Name: s.name, Flag: "--" + s.name, Variable: s.variable(), Value: value, Source: s.source, Unit: s.unit, Reload: s.hot, Help: s.help}
}

func (p *program) configPrint(l *layers) error {
	var list []shownSetting
	var people strings.Builder
	for _, s := range l.table {
		line := shown(s)
		list = append(list, line)
		fmt.Fprintf(&people, "%s: %q # %s\n", line.Name, line.Value, line.Source)
	}
	return p.print(list, people.String())
}

func (p *program) configEnv(l *layers) error {
	var list []shownSetting
	var people strings.Builder
	table := tabwriter.NewWriter(&people, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "FLAG\tVARIABLE\tDEFAULT\tUNIT\tSIGHUP\tMEANING")
	for _, s := range l.table {
		line := shown(s)
		line.Value, line.Source = s.unset, ""
		list = append(list, line)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", line.Flag, line.Variable, line.Value, line.Unit, reload(s.hot), line.Help)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return p.print(list, people.String()+"\nA file given with --config (or COATCHECK_CONFIG) takes the flags' names without the dashes in front.\n")
}

// reload says whether a setting can change while the process runs.
func reload(hot bool) string {
	if hot {
		return "reload"
	}
	return "restart"
}
