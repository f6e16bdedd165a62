package idempotency

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestDoRunsOnceAmongManyDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		ref := ClientKey("", "consumer", "message-1")
		var runs, replayed, busy atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				result, err := tokens.Do(t.Context(), ref, Terms{}, func(ctx context.Context) ([]byte, error) {
					runs.Add(1)
					if attempt, ok := FromContext(ctx); !ok || attempt.Fence == 0 {
						t.Errorf("attempt %+v", attempt)
					}
					return []byte("done"), nil
				})
				switch {
				case errors.Is(err, ErrInProgress):
					busy.Add(1)
				case err != nil || string(result.Value) != "done":
					t.Errorf("%+v, %v", result, err)
				case result.Replayed:
					replayed.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || replayed.Load()+busy.Load() != 49 {
			t.Errorf("%d runs, %d replayed, %d in progress", runs.Load(), replayed.Load(), busy.Load())
		}
		if result, err := tokens.Do(t.Context(), ref, Terms{}, nil); err != nil || !result.Replayed || string(result.Value) != "done" {
			t.Errorf("afterwards %+v, %v", result, err)
		}
	})
}

var errProvider = errors.New("the provider hung up")

func TestDoThatFailsIsInDoubtOrGoesOnByPolicy(t *testing.T) {
	failing := func(context.Context) ([]byte, error) { return nil, errProvider }
	never := func(ctx context.Context) ([]byte, error) {
		attempt, _ := FromContext(ctx)
		attempt.NotBegun()
		return nil, errProvider
	}
	working := func(context.Context) ([]byte, error) { return []byte("done"), nil }
	for name, row := range map[string]struct {
		policy Policy
		first  func(context.Context) ([]byte, error)
		want   error
	}{
		"hold":                  {Hold, failing, ErrInDoubt},
		"takeover":              {Takeover, failing, nil},
		"hold, but never began": {Hold, never, nil},
	} {
		tokens := embeddedTokens(t)
		ref := ClientKey("", "consumer", name)
		if _, err := tokens.Do(t.Context(), ref, Terms{Policy: row.policy}, row.first); !errors.Is(err, errProvider) {
			t.Errorf("%s: first %v", name, err)
		}
		result, err := tokens.Do(t.Context(), ref, Terms{Policy: row.policy}, working)
		if !errors.Is(err, row.want) || err == nil && string(result.Value) != "done" {
			t.Errorf("%s: then %+v, %v", name, result, err)
		}
	}
}

func TestDoEndsWithItsContextAndWhenSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := embeddedTokens(t)
		wait := func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return []byte("late"), context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := tokens.Do(ctx, ClientKey("", "c", "1"), Terms{}, wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}

		ref, terms := ClientKey("", "c", "2"), Terms{Policy: Takeover, Lease: 3 * time.Second}
		done := make(chan error)
		go func() {
			_, err := tokens.Do(t.Context(), ref, terms, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return []byte("late"), nil // it did not look why
			})
			done <- err
		}()
		time.Sleep(time.Second / 2)
		lapse(t, tokens, tokens.keys(ref)[0])
		result, err := tokens.Do(t.Context(), ref, terms, func(context.Context) ([]byte, error) { return []byte("heir"), nil })
		if err != nil || string(result.Value) != "heir" {
			t.Errorf("%+v, %v", result, err)
		}
		if err := <-done; !errors.Is(err, ErrSuperseded) {
			t.Errorf("the superseded attempt: %v", err)
		}
		if result, err := tokens.Do(t.Context(), ref, terms, nil); err != nil || string(result.Value) != "heir" {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

func TestDoKeepsNoResultOverTheLimitAndNeverRunsAgain(t *testing.T) {
	tokens := embeddedTokens(t)
	ref := ClientKey("", "c", "large")
	large := bytes.Repeat([]byte("x"), maxResult+1)
	if result, err := tokens.Do(t.Context(), ref, Terms{}, func(context.Context) ([]byte, error) { return large, nil }); err != nil || len(result.Value) != len(large) {
		t.Errorf("%d bytes, %v", len(result.Value), err)
	}
	if result, err := tokens.Do(t.Context(), ref, Terms{}, nil); err != nil || !result.Replayed || !result.NotKept || len(result.Value) != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}
