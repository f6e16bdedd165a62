package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// The lease, wait, TTL and answer of the load.
const (
	benchLease    = 30 * time.Second
	benchWait     = 10 * time.Second
	benchTokenTTL = time.Minute
	benchBody     = `{"bench":true}`
)

// benchLayout is the pools' layout: for leases one with room for 16,384 callers, for ids the usual.
func benchLayout(what string) string {
	if what == benchID {
		return snowflake.DefaultLayout
	}
	return "41/14/8"
}

// workOf is a kind of load at a service.
func workOf(what string, service *client.Client) work {
	switch what {
	case benchIncr:
		return work{
			stays: staysCounter,
			call: func(ctx context.Context, name string) error {
				_, err := service.Incr(ctx, name)
				return err
			},
			clean: func(ctx context.Context, name string) error {
				if err := service.RemoveCounter(ctx, name); !errors.Is(err, client.ErrNotFound) {
					return err
				}
				return nil
			},
		}
	case benchToken:
		return work{call: func(ctx context.Context, name string) error {
			_, err := service.Issue(ctx, name, benchTokenTTL)
			return err
		}}
	case benchGuard:
		return work{call: func(ctx context.Context, name string) error { return guardAtService(ctx, service, name) }, stays: staysAnswers}
	case benchLock:
		return work{call: func(ctx context.Context, name string) error {
			held, err := service.AcquireLock(ctx, name, client.LockRequest{TTL: benchLease, Wait: benchWait})
			if err != nil {
				return err
			}
			return held.Release(ctx)
		}}
	case benchWorker:
		return work{open: poolAtService(service, what), stays: staysPool, call: func(ctx context.Context, name string) error {
			lease, err := service.AcquireWorker(ctx, name, client.WorkerRequest{})
			if err != nil {
				return err
			}
			return service.ReleaseWorker(ctx, lease, lease.NotBefore) // nothing was stamped
		}}
	case benchID:
		return work{open: stampingAtService(service, what), stays: staysPool, call: func(ctx context.Context, name string) error {
			_, err := service.SnowflakeIDs(ctx, name, 1)
			return err
		}}
	case benchSegment:
		return work{stays: staysCounter, call: func(ctx context.Context, name string) error {
			_, err := service.SegmentIDs(ctx, name, 1)
			return err
		}}
	}
	return work{} // --what has no other
}

// guardAtService is one operation that begins once: a token, a claim, and its answer.
func guardAtService(ctx context.Context, service *client.Client, name string) error {
	token, err := service.Issue(ctx, name, benchTokenTTL)
	if err != nil {
		return err
	}
	outcome, err := service.Claim(ctx, token.Value,
		client.ClaimOptions{Fingerprint: client.Fingerprint(name, benchBody), Lease: benchLease})
	if err != nil {
		return err
	}
	return service.Complete(ctx, token.Value, outcome.Grant.Lease, client.Answer{Status: http.StatusOK, Body: []byte(benchBody)})
}

func poolAtService(service *client.Client, what string) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		_, err := service.CreatePool(ctx, name, client.PoolShape{Layout: benchLayout(what), TTL: workerlease.DefaultTTL})
		if errors.Is(err, client.ErrPoolExists) {
			return nil
		}
		return err
	}
}

// stampingAtService has the service lease a worker id of a pool, which takes a moment.
func stampingAtService(service *client.Client, what string) func(context.Context, string) error {
	create := poolAtService(service, what)
	return func(ctx context.Context, name string) error {
		if err := create(ctx, name); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, benchWait)
		defer cancel()
		for {
			_, err := service.SnowflakeIDs(ctx, name, 1)
			if err == nil || ctx.Err() != nil || !errors.Is(err, client.ErrUnavailable) {
				return err
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
}
