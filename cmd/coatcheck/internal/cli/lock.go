package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

func (p *program) lockCommand() *cobra.Command {
	return group("lock", "Run commands under a lock, and look at locks",
		"Run commands under a lock, look at locks and break them: at a running service (--server), or straight on Redis (--redis).",
		p.lockRunCommand(), p.lockListCommand(), p.lockBreakCommand())
}

// again is what has to be repeated to ask at the same place, for another shell: what flags,
// environment and file have said of the service, or of Redis. A URL with a password is left to the
// variable of that name, which has to be set there; so has that of the API key.
func (s *source) again() (text string) {
	if s.File != "" {
		text = " --config " + shellWord(s.File)
	}
	names := []string{"server", "server-ca", "client-cert", "client-key"}
	if direct, _ := s.direct(); direct {
		names = storeNames
	}
	for _, name := range names {
		setting := s.Find(name)
		if setting == nil || s.weight(name) < 2 || setting.Value == config.Unsaid {
			continue
		}
		text += " --" + name + " " + shellWord(setting.Value)
		if setting.Redact != nil && setting.Redact(setting.Value) != setting.Value || strings.Contains(setting.Value, "@") {
			text = strings.TrimSuffix(text, shellWord(setting.Value)) + `"$` + setting.Variable() + `"`
		}
	}
	return text
}

// shellWord is a word for a shell.
func shellWord(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// ownerOf names this process for people who look at a lock.
func ownerOf(name string) string {
	if name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "process"
	}
	host = config.NameOf(host)
	return fmt.Sprintf("%s:%d", host[:min(len(host), 150)], os.Getpid())
}

func (p *program) lockListCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck lock ls deploy",
		Use:     "ls [NAME]", SuggestFor: []string{"get", "show", "list", "status", "info"}, Short: "List the locks that are held, or show " +
			"one with its queue",
		Long: "List the locks that are held, with their holders, or show one with all who wait for it. Locks of plain clients of " +
			"redislock are shown by their name, and not listed.",
		Args: orNone(oneLock),
	}
	s := bindStraight(command.Flags(), lockSettings)
	command.ValidArgsFunction = offerLocks(p, s, cobra.ShellCompDirectiveNoFileComp)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if len(args) == 0 {
			return p.listLocks(ctx, service)
		}
		shown, err := service.Lock(ctx, args[0])
		if err != nil {
			return err
		}
		return p.print(shown, lockPicture(shown))
	})
}

func (p *program) listLocks(ctx context.Context, service *client.Client) error {
	list, err := collected(service.Locks(ctx, ""))
	if err != nil {
		return err
	}
	people := lockTable(list)
	if len(list) == 0 {
		people = "No lock is held.\n"
	}
	return p.print(api.Locks{Locks: list}, people)
}

func lockTable(list []api.Lock) string {
	return tabular("LOCK\tMODE\tHOLDER\tFENCE\tSINCE\tUNTIL\tWAITING", func(line func(...string)) {
		for _, shown := range list {
			first := []string{shown.Name, modeOf(shown), strconv.Itoa(shown.Waiting)}
			if len(shown.Holders) == 0 {
				line(first[0], first[1], "", "", "", "", first[2])
			}
			for _, holder := range shown.Holders {
				line(first[0], first[1], ownerText(holder), strconv.FormatInt(holder.Fence, 10), clockText(holder.Since.Time),
					untilText(holder.Until.Time), first[2])
				first = []string{"", "", ""}
			}
		}
	})
}

func lockPicture(shown api.Lock) string {
	if len(shown.Holders)+shown.Waiting == 0 {
		return shown.Name + " has no holder.\n"
	}
	people := lockTable([]api.Lock{shown})
	if len(shown.Queue) > 0 {
		people += "\n" + tabular("PLACE\tWAITER\tMODE\tSINCE", func(line func(...string)) {
			for i, waiter := range shown.Queue {
				line(strconv.Itoa(i+1), waiter.Owner, waiter.Mode+taken(waiter.Take), clockText(waiter.Since.Time))
			}
		})
	}
	if more := shown.Waiting - len(shown.Queue); more > 0 {
		people += fmt.Sprintf("and %d more\n", more)
	}
	return people
}

// tabular lays cells out under a heading.
func tabular(heading string, fill func(line func(cells ...string))) string {
	var people strings.Builder
	table := tabwriter.NewWriter(&people, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, heading)
	fill(func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")) })
	_ = table.Flush() // to a strings.Builder, which takes everything
	return people.String()
}

func modeOf(shown api.Lock) string {
	if shown.Permits > 0 {
		return fmt.Sprintf("%s/%d", shown.Mode, shown.Permits)
	}
	return shown.Mode
}

func ownerText(holder api.LockHolder) string {
	if holder.Fence == 0 && holder.Owner == "" {
		return "(a client of redislock)"
	}
	return holder.Owner + taken(holder.Take)
}

func taken(permits int) string {
	if permits > 1 {
		return fmt.Sprintf(" ×%d", permits)
	}
	return ""
}

func untilText(at time.Time) string {
	if at.IsZero() {
		return "for ever"
	}
	return clockText(at)
}

func clockText(at time.Time) string {
	if at.IsZero() {
		return "?"
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}
