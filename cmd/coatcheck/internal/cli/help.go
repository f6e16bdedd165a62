package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/names"
)

const helpWidth = 100

// groupedFlags writes flags under their settings' headings: a command's own first, common last.
func groupedFlags(flags *pflag.FlagSet) string {
	const own, common = "", "Other flags"
	groups, headings := map[string]*pflag.FlagSet{own: newGroup(), common: newGroup()}, []string{own}
	flags.VisitAll(func(flag *pflag.Flag) {
		heading := common
		if value, ok := flag.Value.(*config.FlagValue); ok {
			heading = value.Setting.Group
		}
		if groups[heading] == nil {
			groups[heading] = newGroup()
			headings = append(headings, heading)
		}
		groups[heading].AddFlag(flag)
	})
	if len(headings) == 1 && !groups[own].HasAvailableFlags() {
		return groups[common].FlagUsagesWrapped(helpWidth)
	}
	var text strings.Builder
	for _, heading := range append(headings, common) {
		if groups[heading].HasAvailableFlags() {
			if heading != own {
				fmt.Fprintf(&text, "\n%s:\n", heading)
			}
			text.WriteString(groups[heading].FlagUsagesWrapped(helpWidth))
		}
	}
	return text.String()
}

func newGroup() *pflag.FlagSet {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	group.SortFlags = false
	return group
}

// groupFlags has help write flags under headings: the usage that cobra writes with that one change.
// A template would do it as well, and would keep the linker from leaving out what is never called.
func groupFlags(root *cobra.Command) {
	written := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		var usage strings.Builder
		to := c.OutOrStderr()
		c.SetOut(&usage)
		err := written(c)
		c.SetOut(to)
		flags, groups := c.LocalFlags().FlagUsages(), groupedFlags(c.LocalFlags())
		text := strings.Replace(usage.String(), strings.TrimRight(flags, " \n"), strings.TrimRight(groups, " \n"), 1)
		_, unwritten := io.WriteString(to, text)
		return errors.Join(err, unwritten)
	})
}

// completeChoices makes the shell offer the values of flags that have a fixed list. cobra keeps
// registrations for the life of the process, so this happens only when the shell asks.
func completeChoices(command *cobra.Command) {
	command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if value, ok := flag.Value.(*config.FlagValue); ok && value.Setting.Choices != nil {
			// it fails for a flag that is not there
			values := cobra.FixedCompletions(value.Setting.Choices, cobra.ShellCompDirectiveNoFileComp)
			_ = command.RegisterFlagCompletionFunc(flag.Name, values)
		}
	})
	for _, sub := range command.Commands() {
		completeChoices(sub)
	}
}

// group is a command that only has others below it.
func group(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{Use: name, Short: short, Long: long, Args: oneOfThese, SuggestionsMinimumDistance: 2,
		Example: commands[0].Example, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	command.AddCommand(commands...)
	return command
}

// oneOfThese refuses the name of no command below, and names those that may have been meant.
func oneOfThese(group *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := group.SuggestionsFor(args[0])
	for i, name := range meant {
		meant[i] = group.CommandPath() + " " + name
	}
	if len(meant) == 0 {
		for _, command := range group.Commands() {
			if command.IsAvailableCommand() {
				meant = append(meant, command.CommandPath())
			}
		}
	}
	return usageError{fmt.Errorf("%s has no command %q. Did you mean: %s?", group.CommandPath(), args[0], strings.Join(meant, ", "))}
}

// hideAllBut keeps the flags that a command reads in its help; it still takes the others, since the
// command shares a file and variables with the service.
func hideAllBut(flags *pflag.FlagSet, shown ...string) {
	flags.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	for _, name := range shown {
		flags.Lookup(name).Hidden = false
	}
}

// withNearest adds to the error of an unknown flag the one that may have been meant.
func withNearest(flags *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var all []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			all = append(all, flag.Name)
		}
	})
	name := unknown.GetSpecifiedName()
	if near := names.Nearest(name, all); near != "" {
		return fmt.Errorf("%w; is --%s meant?", err, near)
	}
	return err
}

// tryHelp points to the help after a usage error of a command.
func tryHelp(command *cobra.Command) string {
	try := "Try `" + command.CommandPath() + " --help`"
	if command.Flags().Lookup("config") != nil {
		try += ", or `coatcheck config env` for every setting"
	}
	return try + "."
}
