//go:build steps

package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	walker "github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/redisstore"
)

// operation is one key that requests of two processes have.
type operation struct {
	of     [2]*Tokens
	policy Policy

	mu     sync.Mutex
	starts int
	// the answers of attempts that were told that theirs is recorded, and those of repeats
	recorded, replayed []string
	faults             []error
	late               bool // a claim was given up unused, or an attempt when it could not extend
}

func newOperation(t *testing.T, policy Policy) *operation {
	t.Helper()
	store, _ := storetest.Stepped(t)
	return &operation{of: [2]*Tokens{New(store, Config{}), New(store, Config{})}, policy: policy}
}

// request claims the key, works, and completes it. The walker may let its lease end meanwhile.
func (o *operation) request(process int) walker.Task {
	return walker.Task{Name: fmt.Sprintf("process %d", process), Do: func() {
		tokens, key, ctx := o.of[process], Key{Principal: "p", Scope: "r", ID: "k"}, context.Background()
		outcome, err := tokens.Claim(ctx, key, ClaimOptions{Fingerprint: "f", Policy: o.policy, Lease: MinLease})
		answer := o.claimed(outcome, err)
		if answer == "" {
			return
		}
		step.At("handler: works")
		o.completed(answer, tokens.Complete(ctx, key, outcome.Grant.LeaseToken, Answer{Status: 200, Body: []byte(answer)}))
	}}
}

// extending is a request that extends its claim while it works, and stops when it cannot.
func (o *operation) extending(process int) walker.Task {
	return walker.Task{Name: fmt.Sprintf("process %d, which extends", process), Do: func() {
		tokens, key, ctx := o.of[process], Key{Principal: "p", Scope: "r", ID: "k"}, context.Background()
		outcome, err := tokens.Claim(ctx, key, ClaimOptions{Fingerprint: "f", Policy: o.policy, Lease: MinLease})
		answer := o.claimed(outcome, err)
		if answer == "" {
			return
		}
		until, err := tokens.Extend(ctx, key, outcome.Grant.LeaseToken, 2*MinLease)
		if o.extended(outcome.Grant.Until, until, err); err != nil {
			return
		}
		step.At("handler: works")
		o.completed(answer, tokens.Complete(ctx, key, outcome.Grant.LeaseToken, Answer{Status: 200, Body: []byte(answer)}))
	}}
}

// extended notes how an extension ended. One that is late is refused only where another attempt
// has the claim.
func (o *operation) extended(before, until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil && until.Before(before):
		o.faults = append(o.faults, fmt.Errorf("Extend took the end of the lease back, from %v to %v", before, until))
	case err != nil && errors.Is(err, ErrSuperseded) && o.policy == PolicyTakeover:
		o.late = true
	case err != nil:
		o.faults = append(o.faults, fmt.Errorf("Extend: %w", err))
	}
}

// doing runs the operation by Do, with its heartbeat.
func (o *operation) doing(process int) walker.Task {
	return walker.Task{Name: fmt.Sprintf("process %d, by Do", process), Do: func() {
		var answer string
		result, err := o.of[process].Do(context.Background(), Key{Principal: "p", Scope: "r", ID: "k"}, ClaimOptions{Fingerprint: "f", Policy: o.policy, Lease: MinLease},
			func(context.Context, *Attempt) ([]byte, error) {
				o.mu.Lock()
				o.starts++
				answer = fmt.Sprintf("answer %d", o.starts)
				o.mu.Unlock()
				step.At("handler: works")
				return []byte(answer), nil
			})
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err == nil && result.Replayed:
			o.replayed = append(o.replayed, string(result.Value))
		case err == nil && answer != string(result.Value):
			o.faults = append(o.faults, fmt.Errorf("Do returned %q to the attempt that made %q", result.Value, answer))
		case err == nil:
			o.recorded = append(o.recorded, answer)
		case errors.Is(err, ErrInProgress), errors.Is(err, ErrInDoubt) && o.policy == PolicyHold, errors.Is(err, ErrSuperseded) && o.policy == PolicyTakeover:
		case answer == "" && errors.Is(err, redisstore.ErrUnavailable): // granted too late
			o.late = true
		default:
			o.faults = append(o.faults, fmt.Errorf("Do: %w", err))
		}
	}}
}

// claimed returns the answer that an attempt is to record, "" if there is none.
func (o *operation) claimed(outcome Outcome, err error) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, ErrInProgress), errors.Is(err, ErrInDoubt) && o.policy == PolicyHold:
	case err != nil:
		o.faults = append(o.faults, fmt.Errorf("Claim: %w", err))
	case outcome.Granted:
		o.starts++
		return fmt.Sprintf("answer %d", o.starts)
	default:
		o.replayed = append(o.replayed, string(outcome.Answer.Body))
	}
	return ""
}

func (o *operation) completed(answer string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.recorded = append(o.recorded, answer)
	case !errors.Is(err, ErrSuperseded) || o.policy == PolicyHold:
		o.faults = append(o.faults, fmt.Errorf("Complete: %w", err))
	}
}

// check returns what does not hold: one start under PolicyHold, one answer that is recorded, and it
// is what every repeat gets.
func (o *operation) check() error {
	if o.policy == PolicyHold && (o.starts > 1 || o.starts == 0 && !o.late) {
		return fmt.Errorf("%d starts, want 1", o.starts)
	}
	if len(o.recorded) > 1 || len(o.recorded) == 0 && !o.late {
		return fmt.Errorf("answers that are recorded: %q, want one", o.recorded)
	}
	for _, answer := range o.replayed {
		if len(o.recorded) == 0 || answer != o.recorded[0] {
			return fmt.Errorf("a repeat got %q, and %q are recorded", answer, o.recorded)
		}
	}
	return errors.Join(o.faults...)
}

func (o *operation) play(tasks ...walker.Task) walker.Play {
	return walker.Play{Tasks: tasks, Check: o.check, Close: func() {
		for _, tokens := range o.of {
			_ = tokens.Close(context.Background())
		}
	}}
}

// underBoth walks the tasks of an operation under each policy, in every order.
func underBoth(t *testing.T, tasks func(o *operation) []walker.Task) {
	t.Helper()
	scenes(t, walker.Every, walker.Scene{Preemptions: 2, Ticks: 1, Tick: MinLease}, tasks)
}

// underBothAtRandom walks them in random orders.
func underBothAtRandom(t *testing.T, tasks func(o *operation) []walker.Task) {
	t.Helper()
	scenes(t, walker.Rounds, walker.Scene{Slow: true, Ticks: 2, Tick: MinLease}, tasks)
}

func scenes(t *testing.T, walk func(*testing.T, walker.Scene), scene walker.Scene, tasks func(o *operation) []walker.Task) {
	t.Helper()
	for _, policy := range []Policy{PolicyHold, PolicyTakeover} {
		scene.Begin = func(t *testing.T) walker.Play {
			o := newOperation(t, policy)
			return o.play(tasks(o)...)
		}
		t.Run(string(policy), func(t *testing.T) { walk(t, scene) })
	}
}

func TestWalkEveryOrderOfAKey(t *testing.T) {
	underBoth(t, func(o *operation) []walker.Task { return []walker.Task{o.request(0), o.request(1)} })
}

// The claim that is extended may have lapsed, and the reply may come when another attempt has it.
func TestWalkEveryOrderOfAnExtension(t *testing.T) {
	underBoth(t, func(o *operation) []walker.Task { return []walker.Task{o.extending(0), o.request(1)} })
}

// The heartbeat of Do runs beside the work, and its "no" against the record of the answer.
func TestWalkEveryOrderOfDo(t *testing.T) {
	underBoth(t, func(o *operation) []walker.Task { return []walker.Task{o.doing(0), o.doing(1)} })
}

func TestWalkRandomOrdersOfExtendAndDo(t *testing.T) {
	underBothAtRandom(t, func(o *operation) []walker.Task {
		return []walker.Task{o.doing(0), o.extending(1), o.doing(1), o.request(0)}
	})
}

func TestWalkRandomOrdersOfAKey(t *testing.T) {
	underBothAtRandom(t, func(o *operation) []walker.Task {
		return []walker.Task{o.request(0), o.request(1), o.request(0), o.request(1)}
	})
}
