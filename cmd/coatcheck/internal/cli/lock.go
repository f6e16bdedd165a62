package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) lockCommand() *cobra.Command {
	return group("lock", "Run commands under a lock, and look at locks",
		"Run commands under a lock, look at locks and break them: at a running service (--server), or straight on Redis (--redis).",
		p.lockRunCommand(), p.lockListCommand(), p.lockBreakCommand())
}

// again is what has to be repeated to ask at the same place. It quotes no URL, which may have a
// password in it.
func (s *source) again() string {
	for _, name := range []string{"redis", "server"} {
		if s.weight(name) == 3 {
			return " --" + name + " …"
		}
	}
	return ""
}

// acquire waits for a lock as the request says, and holds it: at a service, or straight on Redis.
type acquire func(ctx context.Context, name string, request client.LockRequest) (heldLock, error)

// heldLock is a lock that this process holds: a *client.Lock or a *lock.Lock.
type heldLock interface {
	Name() string
	Fence() int64
	Context() context.Context
	Validity() time.Duration
	Release(ctx context.Context) error
	ReleaseAfter(ctx context.Context, span time.Duration) error
}

// atLocks runs lock run, and gives its error an exit code.
func (p *program) atLocks(c *cobra.Command, s *source, command func(context.Context, acquire) error) error {
	err := p.either(c, s, func(service *client.Client) error {
		return command(c.Context(), func(ctx context.Context, name string, request client.LockRequest) (heldLock, error) {
			if request.Wait == 0 {
				return service.TryAcquireLock(ctx, name, request)
			}
			return service.AcquireLock(ctx, name, request)
		})
	}, func(store *redisstore.Store) error {
		all := lock.New(store, s.Service.Server.Locks)
		defer all.Close()
		return command(c.Context(), func(ctx context.Context, name string, asked client.LockRequest) (heldLock, error) {
			request := lock.Request{TTL: asked.TTL, Wait: asked.Wait, Mode: lock.Mode(asked.Mode), Owner: asked.Owner, WholeTTL: true}
			if request.Mode == lock.Permits {
				request.Capacity = asked.Permits
			}
			if request.Wait == 0 {
				return all.TryAcquire(ctx, name, request)
			}
			return all.Acquire(ctx, name, request)
		})
	})
	return kindOf(err)
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
