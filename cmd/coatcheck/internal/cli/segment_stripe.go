package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/segment"
)

func (p *program) segmentStripeCommand() *cobra.Command {
	var from, to []string
	var start, step int64
	command := &cobra.Command{
		Use: "stripe TAG", Short: "Spread a tag over several databases, or move it from some to others", Args: oneTag,
		Long: "Spread a tag over several databases, each of which hands out its own ids; or, with --from, move it from those that it " +
			"has to others, more or fewer.\n\n" +
			"The tag is retired in the old ones first, and then opened in the new ones above all ids that were handed out. Processes " +
			"may go on meanwhile: those that know the old databases\n" +
			"are refused from then on, and those that know the new ones until then. If it fails, repeat it until it does not. Every old " +
			"database has to answer; a dash stands\n" +
			"for one that is gone for good, and then --start has to be above all that it can have handed out.",
	}
	l := &leafFlags{}
	l.bindTo(command.Flags(), []*config.Setting{
		config.DatabaseURLs("from", "the databases that the tag has now, in the order of their stripes, with commas between; empty: "+
			"none, the tag is new", &from),
		config.DatabaseURLs("to", "the databases that it shall have, in the order of their stripes", &to),
		config.Number("start", "0", 0, math.MaxInt64, "id", "the least id that the new ones may hand out", &start),
		config.Number("step", strconv.Itoa(segment.DefaultStep), 1, math.MaxInt32, "ids", "how many ids a fetch takes at least", &step),
	})
	command.RunE = func(c *cobra.Command, args []string) error {
		if err := l.complete(c, p); err != nil {
			return err
		}
		move := segment.Restriping{Tag: args[0], Start: start, Step: step}
		closeFrom, errFrom := l.openAll(from, &move.From)
		defer closeFrom()
		closeTo, errTo := l.openAll(to, &move.To)
		defer closeTo()
		if err := errors.Join(errFrom, errTo); err != nil {
			return usageError{err}
		}
		if len(to) == 0 {
			return usageError{errors.New("over which databases? --to URL,URL")}
		}
		floor, err := segment.Restripe(c.Context(), move)
		if err != nil {
			return l.leafError(err)
		}
		shown := map[string]any{"tag": args[0], "stripes": len(to), "floor": strconv.FormatInt(floor, 10)}
		return p.print(shown, fmt.Sprintf("%s has %d stripes. All ids from now on are at or above %d.\n", args[0], len(to), floor))
	}
	return command
}

// openAll opens databases; those that are gone are nil. closeAll closes them, also after an error.
func (l *leafFlags) openAll(urls []string, into *[]*segment.LeafAlloc) (closeAll func(), err error) {
	var closes []func() error
	for _, url := range urls {
		if url == config.Gone {
			*into = append(*into, nil)
			continue
		}
		leaf, db, fault := l.open(url)
		if fault != nil {
			err = errors.Join(err, fault)
			continue
		}
		*into, closes = append(*into, leaf), append(closes, db.Close)
	}
	return func() {
		for _, end := range closes {
			_ = end() // nothing is under way
		}
	}, err
}
