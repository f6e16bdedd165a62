package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

type lockBreak struct {
	fence int64
	again string
	said  bool // the fence was
	yes   bool
}

func (p *program) lockBreakCommand() *cobra.Command {
	b := &lockBreak{}
	command := &cobra.Command{
		Example: "  coatcheck lock break deploy --fence 7 --yes",
		Use:     "break NAME", SuggestFor: []string{"release", "rm", "delete", "unlock", "force"}, Short: "Take a lock from its holder",
		Long: "Take a lock from its holder, and print a new fence: a resource that is told of it refuses the holder from then on. The " +
			"holder hears of it at its next renewal, and may\n" +
			"work until then; the lock goes to the next who waits at once. Without --yes it says what it would do, and does nothing.",
		Args: oneLock,
	}
	s := bindStraight(command.Flags(), lockSettings,
		config.Optional(config.Number("fence", config.Unsaid, 0, 1<<53-1, "fence",
			"of the holder, if there are several; 0 is a plain client of redislock", &b.fence)),
		config.Toggle("yes", "do it", &b.yes))
	command.ValidArgsFunction = offerLocks(p, s, cobra.ShellCompDirectiveNoFileComp)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		b.said, b.again = s.said("fence"), s.again()
		return p.breakLock(ctx, service, args[0], *b)
	})
}

func (p *program) breakLock(ctx context.Context, service *client.Client, name string, b lockBreak) error {
	shown, err := service.Lock(ctx, name)
	if err != nil {
		return err
	}
	holder, err := b.holder(shown)
	if err != nil {
		return err
	}
	if !b.yes {
		return usageError{fmt.Errorf("lock %s is held by %s with fence %d, since %s, until %s if it is not renewed; %d wait\nTo take it "+
			"away: coatcheck lock break %s --fence %d --yes%s",
			name, ownerText(holder), holder.Fence, clockText(holder.Since.Time), untilText(holder.Until.Time), shown.Waiting, name,
			holder.Fence, b.again)}
	}
	fence, err := service.BreakLock(ctx, name, holder.Fence)
	if err != nil {
		return err
	}
	return p.print(api.LockBroken{Name: name, Fence: fence}, fmt.Sprintf("%d\n", fence))
}

func (b lockBreak) holder(shown api.Lock) (api.LockHolder, error) {
	var fences []string
	for _, holder := range shown.Holders {
		if b.said && holder.Fence == b.fence || !b.said && len(shown.Holders) == 1 {
			return holder, nil
		}
		fences = append(fences, fmt.Sprintf("%d (%s)", holder.Fence, ownerText(holder)))
	}
	switch {
	case b.said && shown.MoreHolders > 0: // it may be one of those
		return api.LockHolder{Fence: b.fence}, nil
	case len(fences) == 0:
		return api.LockHolder{}, fmt.Errorf("lock %s has no holder", shown.Name)
	case b.said:
		return api.LockHolder{}, fmt.Errorf("lock %s has no holder with fence %d; the holders' fences are %s", shown.Name, b.fence,
			strings.Join(fences, ", "))
	}
	return api.LockHolder{}, usageError{fmt.Errorf("lock %s has %d holders: name one of them with --fence: %s", shown.Name,
		len(fences)+shown.MoreHolders, strings.Join(fences, ", "))}
}
