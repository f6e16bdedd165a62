package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

func (p *program) operationCommand() *cobra.Command {
	return group("operation", "Look at operations, and end doubt about them",
		"Look at operations, which are what happens under one token or key, and end doubt about them: at a running service (--server), or "+
			"straight on Redis (--redis).\n"+
			"At a service with keys it takes the role admin.",
		p.operationListCommand(), p.operationShowCommand(), p.operationSettleCommand(), p.operationForgetCommand())
}

func (p *program) operationListCommand() *cobra.Command {
	var inDoubt bool
	var prefix string
	command := &cobra.Command{
		Example: "  coatcheck operation ls --in-doubt",
		Use:     "ls", SuggestFor: []string{"list"}, Short: "List the operations in doubt, the oldest first", Args: noArgs,
		Long: "List the operations in doubt: an attempt began and ended without an answer, so it is not known whether it had its effect. " +
			"The one that is in doubt for longest comes first. Find out what became of it by its name or request id in the service's " +
			"own records, " +
			"then end the doubt with: coatcheck operation settle OPERATION. At a service with keys it takes the role admin.",
	}
	s := bindStraight(command.Flags(), operationSettings,
		config.Toggled("in-doubt", "true", "those in doubt; no others are listed", &inDoubt),
		config.Text("with-prefix", "", "text", "only those whose name or route begins so, such as 'POST /payments'", &prefix))
	return p.ask(command, s, func(ctx context.Context, service *client.Client, _ []string) error {
		if !inDoubt {
			return usageError{errors.New("--in-doubt: no others are listed")}
		}
		list, err := collected(service.InDoubt(ctx, prefix))
		if err != nil {
			return err
		}
		return p.print(api.Operations{Operations: list}, operationTable(list))
	})
}

func operationTable(list []api.Operation) string {
	if len(list) == 0 {
		return "No operation is in doubt.\n"
	}
	return tabular("OPERATION\tROUTE\tSINCE\tRAN FOR\tATTEMPTS\tFENCE\tREQUEST", func(line func(...string)) {
		for _, o := range list {
			ran := "?"
			if o.RanForMs != nil {
				ran = (time.Duration(*o.RanForMs) * time.Millisecond).String()
			}
			line(o.Operation, o.Route, clockText(o.Since.Time), ran, strconv.Itoa(o.Attempts), strconv.FormatInt(o.Fence, 10), o.RequestID)
		}
	}) + "\nLook each up in the service's own records, then: coatcheck operation settle OPERATION --completed, --not-begun or --refused\n"
}

func (p *program) operationShowCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck operation show k249VWzn4yaRVjsxcnpYY5nNDyxpCP8m",
		Use:     "show OPERATION", SuggestFor: []string{"get", "status", "info"}, Short: "Say where an operation stands",
		Long: "Say where an operation stands: whether an attempt runs, it is completed or in doubt, or an operator has refused it.",
		Args: oneOperation,
	}
	s := bindStraight(command.Flags(), operationSettings)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		operation, err := service.Operation(ctx, args[0])
		if err != nil {
			return err
		}
		return p.print(operation, operationLines(operation))
	})
}

func operationLines(o api.Operation) string {
	return tabular("state\t"+string(o.State), func(line func(...string)) {
		for _, one := range []struct{ name, value string }{
			{"route", o.Route}, {"decision", string(o.Decision)}, {"in doubt since", clockOrNone(o.Since.Time)},
			{"attempts", strconv.Itoa(o.Attempts)},
			{"fence", strconv.FormatInt(o.Fence, 10)}, {"request", o.RequestID}, {"expires at", clockOrNone(o.ExpiresAt.Time)},
		} {
			if one.value != "" {
				line(one.name, one.value)
			}
		}
	})
}

func clockOrNone(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return clockText(at)
}

func (p *program) operationForgetCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck operation forget k249VWzn4yaRVjsxcnpYY5nNDyxpCP8m",
		Use:     "forget OPERATION", SuggestFor: []string{"rm", "delete"}, Short: "Forget a recorded answer, so that the next request runs",
		Long: "Forget the recorded answer of an operation: the next request with its token or key runs it again, with a larger fence.\n" +
			"Repeating it is harmless. An operation in doubt has no answer: settle it. Exit code 75: an attempt may still be running, or " +
			"the service is away.",
		Args: oneOperation,
	}
	s := bindStraight(command.Flags(), operationSettings)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if err := service.ForgetOperation(ctx, args[0]); err != nil {
			return err
		}
		return p.print(map[string]string{"forgotten": args[0]}, fmt.Sprintf("operation %s is forgotten: the next request runs it\n", args[0]))
	})
}

// dashed is a name of an operation that begins with a dash.
var dashed = lazyregexp.New(`^-[A-Za-z0-9_-]{31}$`)

// withOperationLast moves an operation whose name begins with a dash to the end, after "--": it
// would be read as flags.
func withOperationLast(root *cobra.Command, args []string) []string {
	command, _, err := root.Find(args)
	if err != nil || !strings.Contains(command.Use, "OPERATION") || slices.Contains(args, "--") {
		return args
	}
	for i, arg := range args {
		if i > 0 && dashed().MatchString(arg) && !isFlag(command, arg) && !takesNext(command, args[i-1]) {
			return append(slices.Delete(slices.Clone(args), i, i+1), "--", arg)
		}
	}
	return args
}

func isFlag(command *cobra.Command, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	return long && command.Flags().Lookup(name) != nil
}

// takesNext reports whether an argument is a flag whose value is the argument after it.
func takesNext(command *cobra.Command, arg string) bool {
	return isFlag(command, arg) && command.Flags().Lookup(arg[2:]).NoOptDefVal == ""
}

type settling struct {
	completed, notBegun, refused bool
	reason, body, bodyFile       string
	status                       int64
	contentType                  string
}

func (p *program) operationSettleCommand() *cobra.Command {
	var told settling
	var all settlingAll
	command := &cobra.Command{
		Example: "  coatcheck operation settle k249VWzn4yaRVjsxcnpYY5nNDyxpCP8m --completed --status 201 --reason 'in the ledger'",
		Use:     "settle OPERATION", Short: "End the doubt about an operation, after looking at its effect",
		Long: "End the doubt about an operation, after looking at its effect in the service's own records.\n\n" +
			"--completed: it happened. Its answer is recorded (--status, --content-type, --body), and every repeat gets it.\n" +
			"--not-begun: it did not happen. The next request with its token or key runs it, with a larger fence.\n" +
			"--refused: it is not known, or it must not run. Repeats are told that an operator has closed it.\n\n" +
			"After an outage many operations of one route may have ended alike. In the place of OPERATION, --in-doubt --route ROUTE " +
			"shows them and the command that settles them all, each with a line in the service's log.\n\n" +
			"Repeating it is harmless. Exit code 75: an attempt may still be running, or the service is away. At a service with keys it " +
			"takes the role admin.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("one operation belongs here, not %d: coatcheck operation ls --in-doubt lists them", len(args))}
			}
			return nil
		},
	}
	s := bindStraight(command.Flags(), operationSettings, append(all.settings(),
		config.Toggle("completed", "it happened: record its answer", &told.completed),
		config.Toggle("not-begun", "it did not happen: the next request may run it", &told.notBegun),
		config.Toggle("refused", "no request may run it", &told.refused),
		config.Text("reason", "", "text", "why, for the event feed and the log", &told.reason),
		config.Number("status", "200", 200, 599, "", "of the answer, with --completed", &told.status),
		config.Text("body", "", "text", "of the answer, with --completed", &told.body),
		config.Text("body-file", "", "file", "that has the body of the answer, with --completed; - is standard input", &told.bodyFile),
		config.Text("content-type", "application/json", "type", "of the answer, if it has a body", &told.contentType))...)
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if err := all.check(len(args)); err != nil {
			return usageError{err}
		}
		settlement, err := told.settlement(ctx, command.InOrStdin())
		if err != nil {
			return usageError{err}
		}
		if all.asked {
			return p.settleAll(ctx, service, all, settlement)
		}
		if err := service.Settle(ctx, args[0], settlement); err != nil {
			return err
		}
		operation, err := service.Operation(ctx, args[0])
		if err != nil {
			return err
		}
		return p.print(operation, fmt.Sprintf("operation %s is settled: %s\n", args[0], settlement.Decision))
	})
}

func (s settling) settlement(ctx context.Context, input io.Reader) (client.Settlement, error) {
	settlement := client.Settlement{Reason: s.reason}
	for decision, said := range map[api.Decision]bool{api.DecisionHappened: s.completed, api.DecisionNotBegun: s.notBegun,
		api.DecisionRefused: s.refused} {
		switch {
		case said && settlement.Decision != "":
			return settlement, errors.New("one of --completed, --not-begun and --refused belongs here, not two")
		case said:
			settlement.Decision = decision
		}
	}
	switch settlement.Decision {
	case "":
		return settlement, errors.New("say what became of the operation: --completed, --not-begun or --refused")
	case api.DecisionHappened:
		return settlement, s.answer(ctx, input, &settlement.Answer)
	}
	if s.body != "" || s.bodyFile != "" {
		return settlement, errors.New("an answer belongs to --completed alone")
	}
	return settlement, nil
}

func (s settling) answer(ctx context.Context, input io.Reader, answer *client.Answer) (err error) {
	answer.Status, answer.Body = int(s.status), []byte(s.body)
	switch {
	case s.bodyFile == "":
	case s.body != "":
		return errors.New("one of --body and --body-file belongs here, not both")
	case s.bodyFile == "-":
		answer.Body, err = untilEnd(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(input, maxAnswer)) })
	default:
		answer.Body, err = os.ReadFile(s.bodyFile)
	}
	if len(answer.Body) > 0 {
		answer.Header = map[string]string{"Content-Type": s.contentType}
	}
	return err
}

// maxAnswer is more than a service records, so that the service refuses a larger answer itself.
const maxAnswer = 2 << 20
