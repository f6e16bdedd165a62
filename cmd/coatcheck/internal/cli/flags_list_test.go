package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// flagsList is compared with that of the last release by tools/stable.
const flagsList = "testdata/flags.txt"

// Each command and each of its flags stands in the list. With -update it is written anew.
func TestFlagsAreListed(t *testing.T) {
	lines := flagsOf(ownCommand())
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		expect.NoError(t, "write the file", os.WriteFile(flagsList, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(flagsList)
	expect.NoError(t, "read the page", err)
	if got != string(want) || len(lines) < 50 {
		t.Errorf("%s is not what the commands have (%d lines): go test -run %s ./cmd/coatcheck/internal/cli -args -update", flagsList, len(lines), t.Name())
	}
}

// flagsOf are the commands, each with its flags in one line.
func flagsOf(c *cobra.Command) []string {
	line := c.CommandPath()
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) { line += " --" + flag.Name })
	lines := []string{line}
	for _, sub := range c.Commands() {
		if sub.Hidden {
			continue // for the program itself
		}
		lines = append(lines, flagsOf(sub)...)
	}
	return lines
}

// Each flag that a variable or a file can stand for is a setting of a connection, of the store or
// of the process, whatever commands there are.
func TestFlagsWithAVariableAreSettings(t *testing.T) {
	settings := allSettings()
	isOne := func(s *config.Setting) bool {
		return slices.ContainsFunc(settings, func(o *config.Setting) bool { return o.Name == s.Name && o.Group == s.Group && o.Unit == s.Unit })
	}
	arguments := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			switch value, ok := flag.Value.(*config.FlagValue); {
			case !ok: // such as --json, which is no setting
			case value.Argument:
				arguments++
			case !isOne(value.Setting):
				t.Errorf("%s --%s has the variable %s, and is no setting", c.CommandPath(), flag.Name, value.Setting.Variable())
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(ownCommand())
	if arguments < 50 {
		t.Errorf("%d flags of the commands are arguments of a call", arguments)
	}
}
