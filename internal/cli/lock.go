package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) lockCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "lock", Short: "Run commands under a lock, and look at locks", Args: noArgs,
		Long: "Run commands under a lock, look at locks and break them: at a running service (--server), or straight on Redis (--redis).",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(p.lockRunCommand(), p.lockListCommand(), p.lockBreakCommand())
	return command
}

// locks is where lock run has its lock from: a running service, or Redis itself, where it stands in
// line as long as it waits.
type locks interface {
	// acquire waits for a lock as long as the terms say, and holds it.
	acquire(ctx context.Context, name string, terms lockTerms) (heldLock, error)
}

// lockTerms say how to lock.
type lockTerms struct {
	ttl     time.Duration
	wait    time.Duration // 0 = do not
	mode    string
	permits int64 // that there are
	owner   string
}

// heldLock is a lock that this process holds.
type heldLock struct{ ownLock }

// ownLock is a *client.Lock or a *lock.Lock.
type ownLock interface {
	Name() string
	Fence() int64
	Context() context.Context
	Validity() time.Duration
	Release(ctx context.Context) error
}

// bindLocks adds --server, --redis with what belongs to it, --config and the command's own settings
// to its flags.
func bindLocks(flags *pflag.FlagSet, own ...*config.Setting) *source {
	return bindStraight(flags, []string{"lock-after-loss", "lock-longest-ttl", "clock-skew"}, own)
}

// atLocks runs lock run's part, and says what kind of failure its error is.
func (p *program) atLocks(c *cobra.Command, s *source, command func(context.Context, locks) error) error {
	err := p.either(c, s, func(service *client.Client) error {
		return command(c.Context(), servedLocks{service})
	}, func(store *redisstore.Store) error {
		all := lock.New(store, s.Service.Server.Locks)
		defer all.Close()
		return command(c.Context(), storedLocks{all})
	})
	return kindOf(err)
}

// servedLocks is locks at a running service.
type servedLocks struct{ service *client.Client }

func (s servedLocks) acquire(ctx context.Context, name string, terms lockTerms) (heldLock, error) {
	request := client.LockRequest{
		TTL: terms.ttl, Wait: terms.wait, Mode: terms.mode, Permits: int(terms.permits), Owner: terms.owner,
	}
	ask := s.service.AcquireLock
	if terms.wait == 0 {
		ask = s.service.TryAcquireLock
	}
	held, err := ask(ctx, name, request)
	if err != nil {
		return heldLock{}, err
	}
	return heldLock{held}, nil
}

func shownLock(info client.LockInfo) wire.Lock {
	shown := wire.Lock{
		Name: info.Name, Mode: info.Mode, Permits: info.Permits, Fence: info.Fence, Waiting: info.Waiting, ServerTime: info.Now, Holders: []wire.LockHolder{},
	}
	for _, holder := range info.Holders {
		shown.Holders = append(shown.Holders, wire.LockHolder(holder))
	}
	for _, waiter := range info.Queue {
		shown.Queue = append(shown.Queue, wire.LockWaiter(waiter))
	}
	return shown
}

// storedLocks is locks straight on Redis.
type storedLocks struct{ locks *lock.Locks }

func (s storedLocks) acquire(ctx context.Context, name string, terms lockTerms) (heldLock, error) {
	request := lock.Request{TTL: terms.ttl, Wait: terms.wait, Mode: lock.Mode(terms.mode), Owner: terms.owner, WholeTTL: true}
	if request.Mode == lock.Permits {
		request.Capacity = int(terms.permits)
	}
	ask := s.locks.Acquire
	if terms.wait == 0 {
		ask = s.locks.TryAcquire
	}
	held, err := ask(ctx, name, request)
	if err != nil {
		return heldLock{}, err
	}
	return heldLock{held}, nil
}

// ownerOf names this process for people who look at a lock.
func ownerOf(name string) string {
	if name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "process"
	}
	host = config.NameOf(host)
	return fmt.Sprintf("%s:%d", host[:min(len(host), 150)], os.Getpid())
}

func checkLock(name string) error {
	if !names.InPath(name) {
		return usageError{fmt.Errorf("%q cannot be a lock's name: %s", name, names.Rule)}
	}
	return nil
}
