package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestHelpOfServeHasTypesAndHeadings(t *testing.T) {
	help := execute(t, nil, "serve", "--help").exits(done).stdout
	for _, want := range []string{
		"\nStore:\n      --redis URL ", "\n      --ack replicas or all ", "\n      --max-bytes int ", "--store-timeout duration ", "--console read|write|off ",
		"\nLocks:\n", "      --insecure   ", "--cors-origins origin,... ", "\nOther flags:\n      --config file ",
	} {
		expect.Contains(t, "help of serve", help, want)
	}
	for line := range strings.Lines(help) {
		if strings.HasPrefix(line, "      --") && len(line) > helpWidth+1 {
			t.Errorf("help of serve: got a line of %d bytes, want %d at most: %s", len(line), helpWidth, line)
		}
	}
	for _, s := range config.ServiceSettings(&config.Service{}) {
		if s.Group == "" {
			t.Errorf("setting %s stands under no heading", s.Name)
		}
	}
}

func TestHelpOfHealthcheckHasItsFlagsOnly(t *testing.T) {
	help := execute(t, nil, "healthcheck", "--help").exits(done).stdout
	expect.Equal(t, "flags in the help of healthcheck", strings.Count(help, "  --"), len([]string{"listen", "tls-cert", "tls-key", "config", "json"}))
	expect.Contains(t, "help of healthcheck", help, "--listen host:port")
}

func TestHelpOfACommandBeginsWithItsOwnFlags(t *testing.T) {
	help := execute(t, nil, "incr", "--help").exits(done).stdout
	expect.Contains(t, "help of incr", help, "\nFlags:\n      --by int ")
	lacks(t, "help of incr", help, "embedded:") // which it refuses, and does without
	if own, service := strings.Index(help, "--by int"), strings.Index(help, "\nService:\n"); service < own {
		t.Errorf("help of incr: got the service's flags at %d, want them after the command's own at %d", service, own)
	}
}

func TestUsageErrorsNameTheHelpOfTheirCommand(t *testing.T) {
	for line, want := range map[string]string{
		"serve --nope":        "Try `coatcheck serve --help`, or `coatcheck config env` for every setting.",
		"nope":                "Try `coatcheck --help`.",
		"lock nope":           "Try `coatcheck lock --help`.",
		"operation ls --nope": "Try `coatcheck operation ls --help`, or `coatcheck config env` for every setting.",
		"serve --ack many":    "Try `coatcheck serve --help`, or `coatcheck config env` for every setting.",
	} {
		expect.Contains(t, "coatcheck "+line, execute(t, nil, strings.Fields(line)...).exits(usage).stderr, want)
	}
}

func TestShellIsOfferedTheValuesOfAFlag(t *testing.T) {
	for line, want := range map[string]string{
		"serve --log-level": "debug\ninfo\nwarn\nerror\n",
		"serve --console":   "read\nwrite\noff\n",
		"lock run --mode":   "exclusive\nshared\n",
		"gateway --log-fo":  "--log-format",
		"serve --new-pools": "wait\ntrust\n",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		if want[0] != '-' {
			args = append(args, "")
		}
		expect.Contains(t, "completion of "+line, execute(t, nil, args...).exits(done).stdout, want)
	}
}

func TestMistypedCommandNamesTheOneThatWasMeant(t *testing.T) {
	for line, want := range map[string]string{
		"lock get": "coatcheck lock ls", "lock relase": "coatcheck lock break, coatcheck lock ls, coatcheck lock run", "lock unlock": "coatcheck lock break",
		"token get": "coatcheck token show", "token shwo": "coatcheck token show", "worker list": "coatcheck worker ls", "counter show": "coatcheck counter get",
	} {
		t.Run(line, func(t *testing.T) {
			execute(t, nil, strings.Fields(line)...).exits(usage, "has no command", "Did you mean: "+want)
		})
	}
}

func TestEveryHelpHasAnExample(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return // for the program itself
		}
		if !strings.HasPrefix(strings.TrimLeft(c.Example, " "), "coatcheck") && !strings.Contains(c.Example, "$("+c.CommandPath()) {
			t.Errorf("%s: got the example %q, want one that begins with coatcheck", c.CommandPath(), c.Example)
		}
		for line := range strings.Lines(c.Example) {
			if !strings.Contains(line, c.CommandPath()) {
				t.Errorf("the example of %s is of another command: %s", c.CommandPath(), line)
			}
			_, line, _ = strings.Cut(strings.Split(line, " -- ")[0], "coatcheck ")
			named, _, err := ownCommand().Find(strings.Fields(line))
			expect.NoError(t, "find the command of the example "+line, err)
			for word := range strings.FieldsSeq(line) {
				name, long := strings.CutPrefix(word, "--")
				if long && named.Flags().Lookup(name) == nil && named.InheritedFlags().Lookup(name) == nil {
					t.Errorf("the example of %s has a flag that there is not: %s", c.CommandPath(), word)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(ownCommand())
}
