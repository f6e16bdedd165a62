package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/textid"
	"github.com/coatcheck/coatcheck/snowflake"
)

// idOrigin is the layout and epoch of an id by the flags: an id does not hold them.
type idOrigin struct {
	layout, epoch, pool string
}

func (p *program) idDecodeCommand() *cobra.Command {
	var form idForm
	var origin idOrigin
	command := &cobra.Command{
		Example: "  coatcheck id decode 912005991254458368 --pool orders",
		Use:     "decode ID…", Short: "Take ids apart: time, datacenter, worker id, sequence",
		Long: "Take ids apart: time, datacenter, worker id, sequence. An id does not tell its layout and epoch: name them, or the " +
			"--pool that has them, for which a service or\n" +
			"Redis is asked. Without them they are those of a pool that names none. --format ulid or typeid: the time, the\n" +
			"UUID and the prefix.",
		Args: some("ids belong here"),
	}
	s := bindStraight(command.Flags(), workerSettings, append(form.bind(append(snowflake.Formats(), textid.ULID, textid.TypeID)...),
		layoutText("layout", "of the ids; empty: "+snowflake.DefaultLayout, &origin.layout),
		moment("epoch", "of the ids; empty: "+snowflake.DefaultEpoch.Format(time.RFC3339), &origin.epoch),
		config.Text("pool", "", "name", "asked for its layout and epoch", &origin.pool))...)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if form.format == textid.ULID || form.format == textid.TypeID {
			if origin != (idOrigin{}) {
				return usageError{fmt.Errorf("--format %s: an id of that kind has no layout, epoch or pool", form.format)}
			}
			return p.decodeTexts(args, string(form.format))
		}
		style, err := origin.style(ctx, service, s.said("width"), form.width)
		if err != nil {
			return err
		}
		return p.decodeIDs(args, form.format, style)
	})
}

// style finds layout and epoch. Only a pool is asked for.
func (o *idOrigin) style(ctx context.Context, service *client.Client, wide bool, width int64) (style snowflake.Style, err error) {
	style = snowflake.Style{Layout: snowflake.MustLayout(snowflake.DefaultLayout), Epoch: snowflake.DefaultEpoch}
	if wide {
		style.Width = int(width)
	}
	if o.pool != "" {
		if o.layout != "" || o.epoch != "" {
			return style, usageError{errors.New("--pool has a layout and an epoch of its own: name it, or them")}
		}
		if err := checkPool(o.pool); err != nil {
			return style, err
		}
		style.Layout, style.Epoch, err = originOf(ctx, service, o.pool)
		return style, err
	}
	if o.layout != "" {
		style.Layout = snowflake.MustLayout(o.layout) // it was checked
	}
	if o.epoch != "" {
		style.Epoch, _ = time.Parse(time.RFC3339, o.epoch) // it was checked
	}
	return style, nil
}

func (p *program) decodeIDs(texts []string, format snowflake.Format, style snowflake.Style) error {
	list := []api.DecodedID{}
	for _, text := range texts {
		width := style
		if width.Width == 0 {
			width.Width = len(text) // a padded id is as wide as it is
		}
		id, err := format.Parse(text, width)
		if err != nil {
			return usageError{err}
		}
		if most := style.Layout.Max(); id > most {
			return usageError{fmt.Errorf("%s: the largest id of layout %v is %v", text, style.Layout, most)}
		}
		parts := style.Layout.Decode(id, style.Epoch)
		if parts.Time.Year() > 9999 { // JSON's times end there
			return usageError{fmt.Errorf("%s: of a time after the year 9999 in layout %v since %s", text, style.Layout,
				style.Epoch.Format(time.RFC3339))}
		}
		list = append(list, api.DecodedID{
			ID: id.String(), Time: api.At(parts.Time), WorkerID: parts.Worker, Datacenter: parts.Datacenter, Sequence: parts.Sequence,
			Layout: style.Layout.String(), Epoch: api.At(style.Epoch),
		})
	}
	people := tabular("ID\tTIME\tDATACENTER\tWORKER\tSEQUENCE", func(line func(...string)) {
		for i, one := range list {
			line(texts[i], one.Time.Format("2006-01-02T15:04:05.000Z07:00"), strconv.Itoa(one.Datacenter), strconv.Itoa(one.WorkerID),
				strconv.FormatInt(one.Sequence, 10))
		}
	})
	return p.print(map[string][]api.DecodedID{"ids": list}, people)
}
