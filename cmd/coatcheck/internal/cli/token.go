package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

func (p *program) tokenCommand() *cobra.Command {
	return group("token", "Issue one-use tokens, and look at them", "", p.tokenIssueCommand(), p.tokenShowCommand())
}

// askTokens is ask for tokens: only the service knows the caller that each belongs to, by its key.
func (p *program) askTokens(command *cobra.Command, s *source, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	return p.ask(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		if direct, err := s.direct(); err == nil && direct && s.apiKey != "" {
			return usageError{errors.New("the token is its caller's own, and only the service knows whose key --api-key is: name that " +
				"with --server; or leave the key out")}
		}
		return do(ctx, service, args)
	})
}

func (p *program) tokenIssueCommand() *cobra.Command {
	var scope string
	var ttl time.Duration
	command := &cobra.Command{
		Example: "  TOKEN=$(coatcheck token issue --ttl 10m)",
		Use:     "issue", SuggestFor: []string{"new", "create"}, Short: "Issue a token and print it", Args: noArgs,
		Long: "Issue a token that may be used once, and print it: TOKEN=$(coatcheck token issue). Straight on Redis it is a token of " +
			"callers that show no key.\n" +
			"Exit code 75: no token was handed out, try again later.",
	}
	s := bindStraight(command.Flags(), tokenSettings,
		config.Span("ttl", "24h", time.Second, 30*24*time.Hour, "how long the token may wait for its use", &ttl),
		config.Text("scope", "", "name", "limits the token to routes of this scope; empty fits all", &scope))
	return p.askTokens(command, s, func(ctx context.Context, service *client.Client, _ []string) error {
		token, err := service.Issue(ctx, scope, ttl)
		if errors.Is(err, client.ErrUnknownOutcome) && ctx.Err() == nil {
			return laterError{err} // that token is lost
		}
		if err != nil {
			return err
		}
		return p.print(api.TokenIssued{Token: token.Value, ExpiresAt: api.At(token.ExpiresAt), Scope: token.Scope}, token.Value+"\n")
	})
}

func (p *program) tokenShowCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck token show -- \"$TOKEN\"",
		Use:     "show TOKEN", SuggestFor: []string{"get", "status", "info"}, Short: "Say where a token stands: issued, claimed, completed, " +
			"in doubt or refused",
		Long: "Say where a token stands: issued, claimed, completed, in doubt, or refused by an operator. A token that begins with a dash " +
			"goes after two: " +
			"coatcheck token show -- TOKEN",
		Args: one("token", anything),
	}
	s := bindStraight(command.Flags(), tokenSettings)
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if _, short := errors.AsType[*pflag.NotExistError](err); short && strings.Contains(err.Error(), "shorthand") {
			// without the token
			return usageError{errors.New("a token that begins with a dash goes after two: coatcheck token show -- TOKEN")}
		}
		return usageError{withNearest(c.Flags(), err)}
	})
	return p.askTokens(command, s, func(ctx context.Context, service *client.Client, args []string) error {
		status, err := service.Status(ctx, args[0])
		if err != nil {
			return err
		}
		return p.print(status, tokenLines(status))
	})
}

func tokenLines(status api.TokenStatus) string {
	return tabular("state\t"+string(status.State), func(line func(...string)) {
		line("expires at", clockText(status.ExpiresAt.Time))
		line("attempts", strconv.Itoa(status.Attempts))
		if status.Fence != 0 {
			line("fence", strconv.FormatInt(status.Fence, 10))
			line("lease until", clockText(status.LeaseUntil.Time))
		}
		if status.Scope != "" {
			line("scope", status.Scope)
		}
	})
}
