package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What runs under a key of the caller's own runs once, and every repeat gets its answer.
func TestDoKeyRunsOnce(t *testing.T) {
	s := embedded(t)
	key := client.OwnKey{Key: "evt 1/2 ü", Scope: "webhooks", Retention: time.Hour}
	var runs atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := s.DoKey(t.Context(), key, client.ClaimOptions{}, func(ctx context.Context, attempt *client.Attempt) ([]byte, error) {
				runs.Add(1)
				return working(ctx, attempt)
			})
			if err != nil {
				expect.Error(t, "DoKey beside another", err, client.ErrInProgress)
			}
		})
	}
	all.Wait()
	expect.Equal(t, "runs", runs.Load(), 1)
	result, err := s.DoKey(t.Context(), key, client.ClaimOptions{}, mustNotRun(t))
	isDone(t, "a repeat", result, err, true)
	outcome, err := s.ClaimKey(t.Context(), key, client.ClaimOptions{Fingerprint: "do"})
	succeeds(t, "ClaimKey", err)
	succeeds(t, "ForgetOperation", s.ForgetOperation(t.Context(), outcome.Operation))
	result, err = s.DoKey(t.Context(), key, client.ClaimOptions{}, working)
	isDone(t, "Do after its answer was forgotten", result, err, false)
}

// A claim is extended, given back and completed under the name that it tells.
func TestClaimKeyTellsTheOperation(t *testing.T) {
	s := embedded(t)
	key, terms := client.OwnKey{Key: "k"}, client.ClaimOptions{Fingerprint: "f"}
	for _, give := range []bool{true, false} {
		outcome, err := s.ClaimKey(t.Context(), key, terms)
		succeeds(t, "ClaimKey", err)
		expect.MustEqual(t, "granted", outcome.Granted, true)
		lease := outcome.Grant.Lease
		_, err = s.ExtendOperation(t.Context(), outcome.Operation, lease, time.Minute)
		succeeds(t, "ExtendOperation", err)
		if give {
			succeeds(t, "ReleaseOperation", s.ReleaseOperation(t.Context(), outcome.Operation, lease))
			continue
		}
		succeeds(t, "CompleteOperation", s.CompleteOperation(t.Context(), outcome.Operation, lease, done))
	}
	_, err := s.ClaimKey(t.Context(), key, client.ClaimOptions{Fingerprint: "g"})
	expect.Error(t, "ClaimKey for another request", err, client.ErrMismatch)
	for _, key := range []string{"", "a\x00", "\xff", strings.Repeat("k", 1025)} {
		_, err := s.ClaimKey(t.Context(), client.OwnKey{Key: key}, terms)
		expect.Error(t, "ClaimKey with what is no key", err, client.ErrInvalid)
	}
}

// JSON has one character for all that is not UTF-8: two digests in raw bytes would be the same.
func TestFingerprintThatIsNoTextIsRefused(t *testing.T) {
	s := embedded(t)
	for _, raw := range []string{"\xff", "digest \xc3\x28"} {
		terms := client.ClaimOptions{Fingerprint: raw}
		_, byKey := s.ClaimKey(t.Context(), client.OwnKey{Key: "k"}, terms)
		_, byToken := s.Claim(t.Context(), issue(t, s.Client), terms)
		_, done := s.DoKey(t.Context(), client.OwnKey{Key: "k"}, terms, mustNotRun(t))
		for what, err := range map[string]error{"ClaimKey": byKey, "Claim": byToken, "DoKey": done} {
			expect.Error(t, what+" with raw bytes for a fingerprint", err, client.ErrInvalid)
			expect.Contains(t, "the error of "+what, err.Error(), "fingerprint", "256 bytes of UTF-8")
		}
	}
}

var errWorking = errors.New("the work failed")

// A function failed before or after its effect. The next call finds out which, and goes on.
func TestDoKeyAsksItsResolver(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	for name, happened := range map[string]bool{"before": false, "after": true} {
		key, runs := client.OwnKey{Key: name, Scope: "resolved"}, 0
		var fence int64
		resolve := func(_ context.Context, operation string, closed int64) (client.Resolution, error) {
			expect.Equal(t, "the fence to close", closed, fence)
			expect.Equal(t, "the operation's name has 32 characters", len(operation), 32)
			if happened {
				return client.Resolution{Decision: api.DecisionHappened, Answer: done}, nil
			}
			return client.Resolution{Decision: api.DecisionNotBegun}, nil
		}
		options := client.ClaimOptions{Lease: 100 * time.Millisecond, Resolve: resolve}
		work := func(ctx context.Context, attempt *client.Attempt) ([]byte, error) {
			if runs++; runs == 1 {
				fence = attempt.Fence
				return nil, errWorking
			}
			expect.Equal(t, "whether the fence is larger", attempt.Fence > fence, true)
			return done.Body, nil
		}
		_, err := s.DoKey(t.Context(), key, options, work)
		expect.Error(t, "the error of the first DoKey's function", ofWork(t, err), errWorking)
		var result client.Result
		expect.Eventually(t, "the next DoKey goes on", func() bool {
			result, err = s.DoKey(t.Context(), key, options, work)
			return err == nil
		})
		isDone(t, "the next DoKey", result, err, happened)
		expect.Equal(t, "runs of the work that failed "+name, runs, map[bool]int{true: 1, false: 2}[happened])
	}
}
