package idempotency

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestDoRunsOnceAmongManyDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		key := Key{Scope: "consumer", ID: "message-1"}
		var runs, replayed, busy atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				result, err := tokens.Do(t.Context(), key, ClaimOptions{Lease: time.Hour}, func(ctx context.Context, attempt *Attempt) ([]byte, error) {
					runs.Add(1)
					if inside, ok := FromContext(ctx); !ok || inside != attempt || attempt.Fence == 0 {
						t.Errorf("attempt in the job: got %+v, and %+v in its context, want one with a fence", attempt, inside)
					}
					return []byte("done"), nil
				})
				switch {
				case errors.Is(err, ErrInProgress):
					busy.Add(1)
				case err != nil || string(result.Value) != "done":
					t.Errorf("one of many Do: got %+v and error %v, want %q", result, err, "done")
				case result.Replayed:
					replayed.Add(1)
				}
			})
		}
		wg.Wait()
		expect.Equal(t, "runs", runs.Load(), 1)
		expect.Equal(t, "others, replayed or in progress", replayed.Load()+busy.Load(), 49)
		result, err := tokens.Do(t.Context(), key, ClaimOptions{}, nil)
		expect.Error(t, "Do afterwards", err, nil)
		expect.Equal(t, "Do afterwards", result, Result{Value: []byte("done"), Replayed: true})
	})
}

// Operators see the scope of a key, as of one that is claimed over HTTP, unless there is a route.
func TestScopeOfAKeyIsShownAsItsRoute(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		for route, want := range map[string]string{"": "orders", "POST /orders": "POST /orders"} {
			key := Key{Scope: "orders", ID: "message of " + want}
			_, err := tokens.Do(t.Context(), key, ClaimOptions{Route: route}, func(context.Context, *Attempt) ([]byte, error) { return nil, errProvider })
			expect.Error(t, "the error of Do's function", ofWork(t, err), errProvider)
			operation, err := tokens.Operation(t.Context(), key.Operation())
			expect.Error(t, "Operation", err, nil)
			expect.Equal(t, "route of an operation that is claimed with the route `"+route+"`", operation.Route, want)
		}
	})
}

var errProvider = errors.New("the provider hung up")

func TestDoThatFailsIsInDoubtOrGoesOnByPolicy(t *testing.T) {
	failing := func(context.Context, *Attempt) ([]byte, error) { return nil, errProvider }
	never := func(ctx context.Context, attempt *Attempt) ([]byte, error) {
		attempt.Release()
		return nil, errProvider
	}
	working := func(context.Context, *Attempt) ([]byte, error) { return []byte("done"), nil }
	for name, row := range map[string]struct {
		policy Policy
		first  func(context.Context, *Attempt) ([]byte, error)
		want   error
	}{
		"hold":                  {PolicyHold, failing, ErrInDoubt},
		"takeover":              {PolicyTakeover, failing, nil},
		"hold, but never began": {PolicyHold, never, nil},
	} {
		tokens := embeddedTokens(t)
		key := Key{Scope: "consumer", ID: name}
		options := ClaimOptions{Policy: row.policy, Lease: time.Hour}
		_, err := tokens.Do(t.Context(), key, options, row.first)
		expect.Error(t, name+": the error of the function", ofWork(t, err), errProvider)
		result, err := tokens.Do(t.Context(), key, options, working)
		expect.Error(t, name+": the second Do", err, row.want)
		if err == nil {
			expect.Equal(t, name+": the second Do", string(result.Value), "done")
		}
	}
}

// ofWork is the error of the function that Do ran.
func ofWork(t *testing.T, err error) error { return workError(t, err).Err }

func workError(t *testing.T, err error) *WorkError {
	t.Helper()
	work, ok := errors.AsType[*WorkError](err)
	if !ok {
		t.Fatalf("Do: got error %v, want one of the function", err)
	}
	return work
}

// Of the classes that an error can have, none may be the work's own: a refusal within it is
// harmless there, and the work may have had its effect before.
func TestErrorOfDosFunctionIsOfNoClass(t *testing.T) {
	classes := []error{redisstore.ErrRefused, redisstore.ErrLost, redisstore.ErrUnknownOutcome}
	for _, inner := range append(classes, ErrInProgress, ErrSuperseded, redisstore.ErrUnavailable) {
		tokens := embeddedTokens(t)
		key := Key{Scope: "jobs", ID: "outer"}
		charged := 0
		_, err := tokens.Do(t.Context(), key, ClaimOptions{Lease: time.Hour}, func(context.Context, *Attempt) ([]byte, error) {
			charged++
			return nil, inner
		})
		expect.Error(t, "the function's error", ofWork(t, err), inner)
		for _, class := range append(classes, inner) {
			if errors.Is(err, class) {
				t.Errorf("Do, whose function returned %v: the error is %v, want no class", inner, class)
			}
		}
		expect.Equal(t, "times that it charged", charged, 1)
		expect.Equal(t, "the operation that the error names", workError(t, err).Operation, key.Operation())
	}
}

func TestDoEndsWithItsContextAndWhenSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		wait := func(ctx context.Context, _ *Attempt) ([]byte, error) {
			<-ctx.Done()
			return []byte("late"), context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := tokens.Do(ctx, Key{Scope: "c", ID: "1"}, ClaimOptions{}, wait)
		expect.Error(t, "the error of a function whose context ends", ofWork(t, err), context.DeadlineExceeded)

		key, options := Key{Scope: "c", ID: "2"}, ClaimOptions{Policy: PolicyTakeover, Lease: 3 * time.Second}
		done := make(chan error)
		go func() {
			_, err := tokens.Do(t.Context(), key, options, func(ctx context.Context, _ *Attempt) ([]byte, error) {
				<-ctx.Done()
				return []byte("late"), nil // it did not check why
			})
			done <- err
		}()
		time.Sleep(time.Second / 2)
		lapse(t, tokens, tokens.keys(key)[0])
		result, err := tokens.Do(t.Context(), key, options, func(context.Context, *Attempt) ([]byte, error) { return []byte("heir"), nil })
		expect.Error(t, "Do after the lease", err, nil)
		expect.Equal(t, "Do after the lease", string(result.Value), "heir")
		expect.Error(t, "Do of the superseded attempt", <-done, ErrSuperseded)
		result, err = tokens.Do(t.Context(), key, options, nil)
		expect.Error(t, "Do afterwards", err, nil)
		expect.Equal(t, "Do afterwards", string(result.Value), "heir")
	})
}

func TestDoKeepsNoResultOverTheLimitAndNeverRunsAgain(t *testing.T) {
	tokens := embeddedTokens(t)
	key := Key{Scope: "c", ID: "large"}
	large := bytes.Repeat([]byte("x"), maxResult+1)
	result, err := tokens.Do(t.Context(), key, ClaimOptions{}, func(context.Context, *Attempt) ([]byte, error) { return large, nil })
	expect.Error(t, "Do with a large result", err, nil)
	expect.Equal(t, "bytes of a large result", len(result.Value), len(large))
	result, err = tokens.Do(t.Context(), key, ClaimOptions{}, nil)
	expect.Error(t, "Do again", err, nil)
	expect.Equal(t, "Do again", result, Result{Replayed: true, NotKept: true}, cmpopts.EquateEmpty())
}

// The caller may use the bytes that Do returned for something else while they are being recorded.
func TestValueOfDoIsRecordedAsTheFunctionReturnedIt(t *testing.T) {
	server, tokens := onRedis(t)
	key := Key{Scope: "c", ID: "1"}
	writes := func(replicas string) {
		expect.Error(t, "CONFIG SET min-replicas-to-write", server.Client().ConfigSet(t.Context(), "min-replicas-to-write", replicas).Err(), nil)
	}
	result, err := tokens.Do(t.Context(), key, ClaimOptions{Lease: time.Hour}, func(context.Context, *Attempt) ([]byte, error) {
		writes("1") // from now on Redis refuses writes
		return []byte("paid"), nil
	})
	expect.Error(t, "Do", err, nil)
	copy(result.Value, "used")
	writes("0")
	expect.Eventually(t, "the value is recorded", func() bool {
		status, err := tokens.Status(t.Context(), key)
		return err == nil && status.State == StateCompleted
	})
	result, err = tokens.Do(t.Context(), key, ClaimOptions{}, nil)
	expect.Error(t, "Do again", err, nil)
	expect.Equal(t, "the value of Do again", string(result.Value), "paid")
}

// over is a context that ends without a signal, as soon as its calls have something to do.
type over struct {
	context.Context

	ended func() bool
}

func (o over) Err() error {
	if o.ended() {
		return context.Canceled
	}
	return nil
}

// A caller that goes away just when its claim is granted leaves no doubt: the function cannot do
// anything under a context that has ended.
func TestDoDoesNotBeginWhenItsContextEndsWithTheGrant(t *testing.T) {
	space := redistest.Shared(t)
	var claimed atomic.Bool
	proxy := redistest.StartProxy(t, strings.TrimPrefix(space.URL, "redis://"), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte("token:{")) {
			claimed.Store(true)
		}
		return redistest.Pass, nil
	})
	tokens := newTokens(t, open(t, redistest.Space{URL: proxy.URL(), Prefix: space.Prefix}))
	ctx, key, ran := over{context.WithoutCancel(t.Context()), claimed.Load}, Key{Scope: "gone", ID: "k"}, 0
	work := func(ctx context.Context, _ *Attempt) ([]byte, error) { ran++; return nil, ctx.Err() }
	_, err := tokens.Do(ctx, key, ClaimOptions{}, work)
	expect.Error(t, "Do whose context ends with the grant", err, context.Canceled)
	expect.Equal(t, "how often the function ran for that", ran, 0)
	_, err = tokens.Do(t.Context(), key, ClaimOptions{}, work)
	expect.Error(t, "the next Do, at once", err, nil)
	expect.Equal(t, "how often the function ran for both", ran, 1)
}
