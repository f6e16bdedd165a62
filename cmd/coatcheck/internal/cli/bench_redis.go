package cli

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// benchAtRedis is a kind of load straight on a Redis, by the library.
func benchAtRedis(what string, store *redisstore.Store, c *config.Service) (work, error) {
	switch what {
	case benchIncr:
		counters := counter.New(store, c.Server.Counters)
		return work{
			stays: staysCounter,
			call: func(ctx context.Context, name string) error {
				_, err := counters.Incr(ctx, name)
				return err
			},
			close: func(context.Context) error { return counters.Close() },
		}, nil
	case benchToken, benchGuard:
		return tokensAtRedis(what, idempotency.New(store, idempotency.Config{})), nil
	case benchLock:
		locks := lock.New(store, c.Server.Locks)
		return work{
			call: func(ctx context.Context, name string) error {
				held, err := locks.Acquire(ctx, name, lock.Request{TTL: benchLease, Wait: benchWait})
				if err != nil {
					return err
				}
				return held.Release(ctx)
			},
			close: func(context.Context) error { return locks.Close() },
		}, nil
	case benchWorker:
		pools := workerlease.New(store, c.Server.Workers)
		return work{open: poolAtRedis(pools, what), stays: staysPool, call: func(ctx context.Context, name string) error {
			lease, err := pools.Acquire(ctx, name, workerlease.Request{Shape: benchShape(what)})
			if err != nil {
				return err
			}
			// nothing was stamped
			return pools.Release(ctx, name, lease.WorkerID, lease.Token, lease.NotBefore)
		}}, nil
	case benchID:
		return stampingAtRedis(workerlease.New(store, c.Server.Workers)), nil
	case benchSegment:
		return segmentsAtRedis(store, c), nil
	}
	return work{}, errUnknownKind
}

func tokensAtRedis(what string, tokens *idempotency.Tokens) work {
	w := work{close: tokens.Close, call: func(ctx context.Context, name string) error {
		_, err := tokens.Issue(ctx, "", name, benchTokenTTL)
		return err
	}}
	if what == benchGuard {
		w.call = func(ctx context.Context, name string) error {
			token, err := tokens.Issue(ctx, "", name, benchTokenTTL)
			if err != nil {
				return err
			}
			ref := idempotency.IssuedToken("", token.Value)
			outcome, err := tokens.Claim(ctx, ref,
				idempotency.ClaimOptions{Fingerprint: benchBody, Lease: benchLease, Retention: benchTokenTTL, Scope: name})
			if err != nil {
				return err
			}
			return tokens.Complete(ctx, ref, outcome.Grant.Owner,
				idempotency.Answer{Status: http.StatusOK, Body: []byte(benchBody)}, benchTokenTTL)
		}
	}
	return w
}

func benchShape(what string) workerlease.Shape {
	layout := snowflake.MustLayout(benchLayout(what))
	return workerlease.Shape{Layout: layout.String(), Epoch: snowflake.DefaultEpoch}
}

func poolAtRedis(pools *workerlease.Pools, what string) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		err := pools.Create(ctx, name, benchShape(what), workerlease.DefaultTTL)
		if errors.Is(err, workerlease.ErrExists) {
			return nil
		}
		return err
	}
}

// stampingAtRedis holds a worker id of each name, and stamps ids in this process.
func stampingAtRedis(pools *workerlease.Pools) work {
	create := poolAtRedis(pools, benchID)
	var mu sync.Mutex
	stampers := map[string]*workerlease.Stamper{}
	return work{
		stays: staysPool,
		open: func(ctx context.Context, name string) error {
			if err := create(ctx, name); err != nil {
				return err
			}
			request, options := workerlease.Request{Shape: benchShape(benchID)},
				workerlease.HoldOptions{Patience: benchWait, Reacquire: true}
			stamper, err := pools.Stamp(ctx, name, request, options, snowflake.Config{})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			stampers[name] = stamper
			return nil
		},
		// the map is only read from the first call on
		call: func(ctx context.Context, name string) error {
			_, err := stampers[name].Next(ctx)
			return err
		},
		close: func(ctx context.Context) (err error) {
			for _, stamper := range stampers {
				err = errors.Join(err, stamper.Close(ctx))
			}
			return err
		},
	}
}

// segmentsAtRedis takes ids from ranges that are fetched ahead, as the service does.
func segmentsAtRedis(store *redisstore.Store, c *config.Service) work {
	source := redissource.New(store, redissource.Config{Counters: c.Server.Counters, Step: c.Server.SegmentStep})
	segments := segment.New(source, c.Server.Segments)
	return work{
		stays: staysCounter,
		call: func(ctx context.Context, name string) error {
			_, err := segments.Next(ctx, name)
			return err
		},
		close: func(context.Context) error {
			segments.Close()
			return source.Close()
		},
	}
}
