package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/segment"
)

// shownTag is a tag as --json has it. Ids are strings: a JSON number may lose digits.
type shownTag struct {
	Tag         string   `json:"tag"`
	MaxID       int64    `json:"max_id,string"`
	Step        int64    `json:"step"`
	UpdatedAt   api.Time `json:"updated_at"`
	Description string   `json:"description,omitempty"`
}

func (p *program) segmentSeedCommand() *cobra.Command {
	var start, step int64
	var description string
	command := &cobra.Command{
		Example: "  coatcheck segment seed orders --start 1 --step 2000",
		Use:     "seed TAG", Short: "Add a tag with its first id and its step", Args: oneTag,
		Long: "Add a tag with its first id and its step. Exit code 1 if it is there already: then it stays as it is.",
	}
	l := bindLeaf(command.Flags(),
		config.Number("start", "1", 0, math.MaxInt64, "id", "the first id that the tag hands out", &start),
		config.Number("step", strconv.Itoa(segment.DefaultStep), 1, math.MaxInt32, "ids", "how many ids a fetch takes at least", &step),
		config.Text("description", "", "text", "what the tag is for, up to 256 characters", &description))
	return p.atLeaf(command, l, func(ctx context.Context, leaf *segment.LeafAlloc, args []string) error {
		seed := func() error { return leaf.Seed(ctx, args[0], start, step, description) }
		if l.sequence != nil {
			seed = func() error { return l.sequence.Seed(ctx, args[0], start, step) }
		}
		if err := seed(); err != nil {
			return err
		}
		shown := map[string]any{"tag": args[0], "max_id": strconv.FormatInt(start, 10), "step": step}
		return p.print(shown, fmt.Sprintf("%s begins at %d, with %d ids a fetch.\n", args[0], start, step))
	})
}

func (p *program) segmentListCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck segment ls --json",
		Use:     "ls", Short: "List the tags, as Leaf's page /db does", Args: noArgs,
		Long: "List the tags of the database, as Leaf's page /db does; that page of the service has those in Redis. All ids that a tag " +
			"has handed out are below its MAX. A step of 0 is a tag that is retired.",
	}
	l := bindLeaf(command.Flags())
	return p.atLeaf(command, l, func(ctx context.Context, leaf *segment.LeafAlloc, _ []string) error {
		tags, err := leaf.Tags(ctx)
		if err != nil {
			return err
		}
		list := []shownTag{}
		for _, tag := range tags {
			list = append(list, shownTag{tag.Tag, tag.MaxID, tag.Step, api.At(tag.Updated), tag.Description})
		}
		return p.print(map[string]any{"tags": list}, tagTable(list))
	})
}

func tagTable(tags []shownTag) string {
	if len(tags) == 0 {
		return "There is no tag.\n"
	}
	return tabular("TAG\tMAX\tSTEP\tUPDATED\tDESCRIPTION", func(line func(...string)) {
		for _, tag := range tags {
			line(tag.Tag, strconv.FormatInt(tag.MaxID, 10), strconv.FormatInt(tag.Step, 10), tag.UpdatedAt.Format(time.RFC3339), tag.Description)
		}
	})
}

func (p *program) segmentRetireCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck segment retire orders",
		Use:     "retire TAG", Short: "End a tag, and say where it ended", Args: oneTag,
		Long: "End a tag: its step becomes 0, and no process is handed a range of it any more (Leaf's own servers take no notice). " +
			"Processes use up the ranges that they have. Repeating it is harmless.",
	}
	l := bindLeaf(command.Flags())
	return p.atLeaf(command, l, func(ctx context.Context, leaf *segment.LeafAlloc, args []string) error {
		most, err := leaf.Retire(ctx, args[0])
		if err != nil {
			return err
		}
		shown := map[string]any{"tag": args[0], "max_id": strconv.FormatInt(most, 10)}
		return p.print(shown, fmt.Sprintf("%s is retired. All its ids are below %d.\n", args[0], most))
	})
}

func (p *program) segmentSetCommand() *cobra.Command {
	var next int64
	command := &cobra.Command{
		Example: "  coatcheck segment set orders 2001",
		Use:     "set TAG NEXT", Short: "Say at which id a tag in Redis goes on",
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
