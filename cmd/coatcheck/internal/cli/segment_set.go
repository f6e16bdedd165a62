package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
)

func (p *program) segmentSetCommand() *cobra.Command {
	var next int64
	command := &cobra.Command{
		Use: "set TAG NEXT", Short: "Say at which id a tag in Redis goes on",
		Long: "Say at which id a tag in Redis goes on, once it is held after a loss (counter-behind): find out what was handed out, and " +
			"begin after that. It goes forward only.\n" +
			"Ranges that services have fetched ahead stay in use. Exit code 2: NEXT is below what Redis knows of.",
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) != 2 {
				return usageError{fmt.Errorf("a tag and an id belong here, not %d words", len(args))}
			}
			if next, err = strconv.ParseInt(args[1], 10, 64); err != nil || next < 1 {
				return usageError{fmt.Errorf("%q is no id: 1 to 9223372036854775807", args[1])}
			}
			return checkTag(args[0])
		},
	}
	s := bindStraight(command.Flags(), counterSettings)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if err := service.SetSegment(ctx, args[0], next); err != nil {
			return err
		}
		shown := api.Segment{Tag: args[0], Next: strconv.FormatInt(next, 10)}
		return p.print(shown, fmt.Sprintf("%s goes on at %d.\n", args[0], next))
	})
}
