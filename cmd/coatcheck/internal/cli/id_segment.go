package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/snowflake"
)

func (p *program) idSegmentCommand() *cobra.Command {
	var form idForm
	var n int64
	command := &cobra.Command{
		Example: "  coatcheck id segment orders -n 10",
		Use:     "segment TAG", Short: "Make ids from a tag's segment, one a line",
		Long: "Make ids from a tag's segment, one a line: small numbers that rise. A running service takes them from the range that it " +
			"has fetched ahead; straight on Redis each call takes\n" +
			"just its own from the counter behind the tag, and --segment-create=false there means what it means for the service. Exit code " +
			"75: no id was made, try again later.",
		Args: oneTag,
	}
	// there is no time in them
	formats := slices.DeleteFunc(snowflake.Formats(), func(format snowflake.Format) bool { return format == snowflake.FormatTimed })
	s := bindStraight(command.Flags(), append([]string{"segment-create"}, counterSettings...), append(form.bind(formats...), howMany(&n))...)
	shortCount(command.Flags())
	command.RunE = func(c *cobra.Command, args []string) error {
		ids, err := p.segmentIDs(c, s, args[0], &n)
		if errors.Is(err, client.ErrUnknownOutcome) {
			return laterError{err} // those ids are lost
		}
		if err != nil {
			return kindOf(err)
		}
		texts, people, err := form.write(ids, snowflake.Style{Width: int(form.width)})
		if err != nil {
			return err
		}
		return p.print(api.SegmentIDs{Tag: args[0], IDs: texts}, people)
	}
	return command
}

// segmentIDs takes n ids of a tag; n is known when the settings were read.
func (p *program) segmentIDs(c *cobra.Command, s *source, tag string, n *int64) (ids []snowflake.ID, err error) {
	err = p.either(c, s, func(service *client.Client) error {
		taken, err := service.SegmentIDs(c.Context(), tag, int(*n))
		for _, id := range taken {
			ids = append(ids, snowflake.ID(id))
		}
		return err
	}, func(store *redisstore.Store) error {
		config := p.serviceHere(&s.Service, store)
		config.Counters = redissource.Counters(config.Counters)
		// its counters are those of the tags
		return askHere(c.Context(), config, func(ctx context.Context, tags *client.Client) error {
			if s.Service.Server.KnownSegments {
				if _, err := tags.Counter(ctx, tag); err != nil {
					return fmt.Errorf("tag %s, and none is made (segment-create): %w", tag, err)
				}
			}
			got, err := tags.IncrBy(ctx, tag, *n)
			if err != nil {
				return err
			}
			for i := range *n {
				ids = append(ids, snowflake.ID(got.First+i))
			}
			return nil
		})
	})
	return ids, err
}
