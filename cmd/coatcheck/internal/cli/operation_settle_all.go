package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

// settlingAll is which operations in doubt are settled together.
type settlingAll struct {
	asked        bool
	route        string
	since, until string
	yes          bool
}

func (a *settlingAll) settings() []*config.Setting {
	return []*config.Setting{
		config.Toggle("in-doubt", "settle all operations in doubt of --route, after showing them", &a.asked),
		config.Text("route", "", "text", "of the operations to settle, with --in-doubt", &a.route),
		moment("since", "only operations in doubt since then or later, with --in-doubt; empty: all", &a.since),
		moment("until", "only operations in doubt since before then, with --in-doubt", &a.until),
		config.Toggle("yes", "settle what --in-doubt has shown; needs --until", &a.yes),
	}
}

// check finds what is wrong with the flags beside the operations that were named.
func (a *settlingAll) check(named int) error {
	switch {
	case !a.asked && named == 0:
		return errors.New("one operation belongs here: coatcheck operation ls --in-doubt lists them; or --in-doubt --route ROUTE, for many")
	case !a.asked && (a.route != "" || a.since != "" || a.until != "" || a.yes):
		return errors.New("--route, --since, --until and --yes belong to --in-doubt")
	case a.asked && named > 0:
		return errors.New("an operation or --in-doubt belongs here, not both")
	case a.asked && a.route == "":
		return errors.New("say whose operations: --route; coatcheck operation ls --in-doubt shows the routes")
	case a.yes && a.until == "":
		return errors.New("--yes needs --until, so that no operation is settled that was not shown: leave --yes out first")
	}
	return nil
}

// takes reports whether an operation is one of those to settle.
func (a *settlingAll) takes(o api.Operation) bool {
	since, _ := time.Parse(time.RFC3339, a.since) // they were checked; empty is the zero time
	until, _ := time.Parse(time.RFC3339, a.until)
	return o.Route == a.route && !o.Since.Before(since) && (until.IsZero() || o.Since.Before(until))
}

// settleAll shows the operations in doubt of a route or, with yes, settles them.
func (p *program) settleAll(ctx context.Context, service *client.Client, all settlingAll, settlement client.Settlement) error {
	listed, err := collected(service.InDoubt(ctx, ""))
	if err != nil {
		return err
	}
	list, newest := []api.Operation{}, time.Time{}
	for _, o := range listed {
		if all.takes(o) {
			list, newest = append(list, o), o.Since.Time // the longest in doubt comes first
		}
	}
	if !all.yes {
		return p.print(api.Operations{Operations: list}, operationTable(list)+all.next(list, listed, newest, settlement.Decision))
	}
	return p.settleEach(ctx, service, list, settlement)
}

// next says how to settle what was shown or, if nothing is, where there are doubts.
func (a *settlingAll) next(list, listed []api.Operation, newest time.Time, as api.Decision) string {
	if len(list) > 0 {
		return fmt.Sprintf("\nNothing is settled yet. To settle these %d as %s: the same command with --until %s --yes\n",
			len(list), as, clockText(newest.Add(time.Millisecond)))
	}
	var routes []string
	for _, o := range listed {
		if route := cmp.Or(o.Route, "(no route)"); !slices.Contains(routes, route) {
			routes = append(routes, route)
		}
	}
	if len(routes) == 0 {
		return ""
	}
	return "There are some of other routes or times: " + strings.Join(routes, ", ") + "\n"
}

// settleEach settles operations. What has ended meanwhile is left, and one that may be running.
func (p *program) settleEach(ctx context.Context, service *client.Client, list []api.Operation, settlement client.Settlement) error {
	report := struct {
		Settled []string `json:"settled"`
		Left    []string `json:"left"`
	}{[]string{}, []string{}}
	var running error
	for _, o := range list {
		err := service.Settle(ctx, o.Operation, settlement)
		switch {
		case err == nil:
			report.Settled = append(report.Settled, o.Operation)
			continue
		case errors.Is(err, client.ErrAttemptRunning):
			running = err
		case !errors.Is(err, client.ErrNotInDoubt) && !errors.Is(err, client.ErrUnknownToken):
			return fmt.Errorf("%d of %d are settled; repeating the command is harmless: %w", len(report.Settled), len(list), err)
		}
		report.Left = append(report.Left, o.Operation)
	}
	text := strconv.Itoa(len(report.Settled)) + " settled: " + string(settlement.Decision) + "\n"
	if len(report.Left) > 0 {
		text += strconv.Itoa(len(report.Left)) + " left, which are not in doubt any more, or which somebody resolves\n"
	}
	return errors.Join(p.print(report, text), running)
}
