package cli

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
)

// A shell waits for what it offers, and shows no more than a screen.
const (
	longestOffer = 2 * time.Second
	mostOffered  = 100
)

// listing lists what a service has whose names begin with a prefix.
type listing[T any] func(service *client.Client, ctx context.Context, prefix string) iter.Seq2[T, error]

// offer has the shell offer names of the service, or of Redis, as the first word of a command.
// after is what it offers in the place of later words.
func offer[T any](p *program, s *source, after cobra.ShellCompDirective, list listing[T], name func(T) string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) (offered []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, after
		}
		ctx, cancel := context.WithTimeout(c.Context(), longestOffer)
		defer cancel()
		c.SetContext(ctx)
		// where no service answers the shell offers what has come
		_ = p.with(c, s, func(ctx context.Context, service *client.Client) error {
			for one, err := range list(service, ctx, begun) {
				if err != nil || len(offered) == mostOffered {
					return err
				}
				if strings.HasPrefix(name(one), begun) {
					offered = append(offered, name(one))
				}
			}
			return nil
		})
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}

func offerLocks(p *program, s *source, after cobra.ShellCompDirective) cobra.CompletionFunc {
	return offer(p, s, after, (*client.Client).Locks, func(l api.Lock) string { return l.Name })
}

func offerPools(p *program, s *source, after cobra.ShellCompDirective) cobra.CompletionFunc {
	return offer(p, s, after, (*client.Client).Pools, func(pool api.WorkerPool) string { return pool.Pool })
}

func offerCounters(p *program, s *source) cobra.CompletionFunc {
	return offer(p, s, cobra.ShellCompDirectiveNoFileComp, (*client.Client).Counters,
		func(one api.ListedCounter) string { return one.Key })
}
