package keepalive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// Causes with which a holder's context ends.
var (
	// ErrLost means that a renewal was refused: the lease is another's, was released, or has ended.
	ErrLost = errors.New("the lease was lost")
	// ErrDeadline means that no renewal was confirmed in time. The lease may still be there, but
	// the holder must not count on it.
	ErrDeadline = errors.New("no renewal was confirmed before the lease could end")
	// ErrReleased means that the holder gave the lease back.
	ErrReleased = errors.New("the lease was released")
)

// look is how often the wall clock is compared with the monotonic one, at the least.
const look = time.Second

// soon is when a grant with less than a TTL is renewed first. Shorter work is never renewed, and
// longer work has its whole TTL then.
const soon = 20 * time.Millisecond

// Config is the lease to keep. TTL, Renew and Lost are required.
type Config struct {
	TTL time.Duration // what a grant and a renewal are good for
	// what the grant is good for, if that is less than TTL; 0 = TTL. Its margin is a tenth of it,
	// if that is less than Margin, and it is renewed soon
	First time.Duration
	// how long before its end the lease counts as ended, TTL/2 at most; 0 = TTL/10, at most 1 s
	Margin time.Duration
	// asks for one more TTL; its context ends with the lease, or after TTL/3 for another try
	Renew func(ctx context.Context) error
	// reports whether a renewal's error says that the lease is gone
	Lost func(err error) bool
	// the keeper's goroutine calls it for a renewal that failed otherwise; nil = no call
	Failed func(err error)
	// the cause of an end by the clock; it wraps ErrDeadline; nil = ErrDeadline
	Late   error
	Strict bool             // wall time that runs ahead ends the lease for good
	Wall   func() time.Time // nil = the wall clock
}

func (c Config) withDefaults() Config {
	if c.Margin <= 0 {
		c.Margin = min(c.TTL/10, time.Second)
	}
	c.Margin = min(c.Margin, c.TTL/2)
	c.First = cmp.Or(c.First, c.TTL)
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	c.Late = cmp.Or(c.Late, ErrDeadline)
	if c.Wall == nil {
		c.Wall = wallClock
	}
	return c
}

func wallClock() time.Time { return time.Now().Round(0) }

// Keeper keeps one lease. It is safe for concurrent use.
type Keeper struct {
	config Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	next   time.Time      // of the first renewal
	start  *time.Timer    // of the goroutine
	runs   sync.WaitGroup // the goroutine, from before it begins

	mu       sync.Mutex
	sent     time.Time // before the last confirmed request was sent
	sentWall time.Time
	good     time.Duration // what that request is good for
	deadline *time.Timer   // nil before the goroutine has begun
}

// Start keeps a lease that was granted, until the context ends, the lease does, or Stop is called.
// sent is the local moment before the grant was asked for, with its monotonic reading, or earlier
// if not all of TTL was left then; wall is what the wall clock said at that moment.
func Start(ctx context.Context, sent, wall time.Time, config Config) *Keeper {
	k := &Keeper{config: config.withDefaults(), sent: sent, sentWall: wall}
	k.good = k.config.First
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.next = sent.Add(jitter(k.good / 3))
	if k.good < k.config.TTL {
		k.next = time.Now().Add(min(soon, k.good/10))
	}
	// Many leases are held for a moment. The goroutine begins when there is something to do: the
	// first look, or the first renewal, which comes before the end.
	k.runs.Add(1)
	k.start = time.AfterFunc(min(look, time.Until(k.next)), k.begin)
	return k
}

// begin is the goroutine.
func (k *Keeper) begin() {
	defer k.runs.Done()
	step.At("keepalive: begins")
	k.mu.Lock()
	k.deadline = time.AfterFunc(k.awakeLocked(), k.expire)
	k.mu.Unlock()
	k.run()
}

// Context ends when the lease does, with ErrLost, ErrDeadline or ErrReleased as its cause, or with
// the cause of the context that Start was given.
func (k *Keeper) Context() context.Context { return k.ctx }

// Valid is how long the lease can be trusted, by monotonic and wall time; 0 or less if it cannot.
func (k *Keeper) Valid() time.Duration {
	if k.ctx.Err() != nil {
		return 0
	}
	return k.left()
}

// Stop ends the keeping and waits until no renewal is under way. Stopping again does nothing.
func (k *Keeper) Stop() {
	k.cancel(ErrReleased)
	step.At("keepalive: ended the context")
	if k.start.Stop() {
		k.runs.Done() // it never begins
	}
	k.runs.Wait()
	step.At("keepalive: no renewal is under way")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.deadline != nil {
		k.deadline.Stop()
	}
}

func (k *Keeper) goodFor() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.good
}

func (k *Keeper) left() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leftLocked()
}

func (k *Keeper) leftLocked() time.Duration {
	return min(k.awakeLocked(), k.usableLocked()-k.config.Wall().Sub(k.sentWall))
}

// usableLocked is for how long after the last confirmed request the lease can be trusted.
func (k *Keeper) usableLocked() time.Duration {
	if k.good < k.config.TTL {
		return k.good - min(k.config.Margin, k.good/10)
	}
	return k.good - k.config.Margin
}

// awakeLocked is the remaining time by the monotonic clock alone.
func (k *Keeper) awakeLocked() time.Duration {
	return k.usableLocked() - time.Since(k.sent)
}

// expire ends the lease when its time is over, unless a renewal has just been confirmed.
func (k *Keeper) expire() {
	step.At("keepalive: the deadline may be over")
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.awakeLocked(); left > 0 {
		k.deadline.Reset(left)
		return
	}
	k.cancel(k.config.Late)
}

// confirm records that a request sent at that moment was granted, unless the lease has ended.
func (k *Keeper) confirm(sent, sentWall time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.awakeLocked() <= 0 {
		k.cancel(k.config.Late)
		return
	}
	k.sent, k.sentWall, k.good = sent, sentWall, k.config.TTL
	k.deadline.Reset(k.awakeLocked())
}

// run renews three times within the lease, counted from when the last renewal was sent, and more
// often while renewals fail.
func (k *Keeper) run() {
	next := k.next
	for first := true; k.sleep(next, first); first = false {
		sent, wall := time.Now(), k.config.Wall()
		slept := k.left() <= 0
		step.At("keepalive: is about to renew")
		err := k.renew()
		step.At("keepalive: has an answer")
		if k.ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			step.At("keepalive: is about to confirm")
			k.confirm(sent, wall)
			next = sent.Add(jitter(k.config.TTL / 3))
		case k.config.Lost(err):
			k.cancel(fmt.Errorf("%w: %w", ErrLost, err))
			return
		case slept:
			k.cancel(fmt.Errorf("%w: %w", k.config.Late, err))
			return
		default:
			k.config.Failed(err)
			next = time.Now().Add(jitter(k.goodFor() / 12))
		}
	}
}

func (k *Keeper) renew() error {
	ctx, cancel := context.WithTimeout(k.ctx, k.goodFor()/3)
	defer cancel()
	return k.config.Renew(ctx)
}

// sleep waits, less if wall time runs ahead so far that the lease counts as ended. It reports
// whether the lease is still to be kept. slept means that a wait is already over.
func (k *Keeper) sleep(until time.Time, slept bool) bool {
	for ; ; slept = false {
		if !slept {
			k.wait(min(time.Until(until), look))
		}
		switch {
		case k.ctx.Err() != nil:
			return false
		case k.left() <= 0 && k.config.Strict:
			k.cancel(k.config.Late)
			return false
		case k.left() <= 0, time.Until(until) <= 0:
			return true
		}
	}
}

func (k *Keeper) wait(d time.Duration) {
	select {
	case <-k.ctx.Done():
	case <-time.After(d):
	}
}

// jitter spreads the renewals of many holders: nine to eleven tenths of d.
func jitter(d time.Duration) time.Duration {
	return d*9/10 + rand.N(d/5+1) //nolint:gosec // it spreads a load, and guessing it gains nothing
}

// Age is how long ago a moment was, by monotonic or wall time, whichever is longer: the monotonic
// clock of Linux stands still while a machine sleeps.
func Age(moment time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(moment), now.Round(0).Sub(moment.Round(0)))
}
