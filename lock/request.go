package lock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
)

// Bounds of what a caller may ask for.
const (
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 30 * time.Second
	MaxPermits = 1_000_000 // permits of one lock
	// MaxHolders is how many may hold a lock together, shared or with permits. The next one waits.
	MaxHolders = 256
)

// Mode is how a lock is held.
type Mode string

// The modes. A lock that is held in one mode excludes holders in the others.
const (
	ModeExclusive Mode = "exclusive" // by one
	ModeShared    Mode = "shared"    // by up to MaxHolders
	ModePermits   Mode = "permits"   // by as many as there are permits, and up to MaxHolders
)

// letter is the mode's name in the scripts; nil if there is no such mode.
func (m Mode) letter() any {
	switch m {
	case ModeExclusive:
		return "x"
	case ModeShared:
		return "s"
	case ModePermits:
		return "p"
	}
	return nil
}

// Request describes a lock to acquire. The zero value is an exclusive lock with the defaults.
type Request struct {
	// TTL is how long the lock is held without renewal, in whole milliseconds, MinTTL to
	// Config.LongestTTL; 0 = DefaultTTL.
	TTL time.Duration
	// Wait is how long to wait for others at most; 0 = as long as the context allows. TryAcquire
	// does not wait.
	Wait time.Duration
	// Mode is how to hold it; "" = ModeExclusive, or ModePermits if Permits is more than 1.
	Mode Mode
	// Permits is how many permits there are, up to MaxPermits; 0 = 1. All requests for a lock that
	// are open at one time must state the same. More than 1 goes with ModePermits only.
	Permits int
	// Take is how many of them to take; 0 = 1.
	Take int
	// Owner names the holder for people, up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -; "" =
	// Config.Owner.
	Owner string
	// WholeTTL makes the lock begin with its whole TTL: a lock that another process hands over is
	// asked for first, one round trip later. For callers that read Validity once, at the beginning,
	// and for work that must not end at once because Redis does not answer.
	WholeTTL bool
	// Token is the secret that names this request: 22 characters of base64url, as
	// idempotency.NewLeaseToken makes them. The same token asked again gets the same grant, after a
	// lost reply. Two requests must never share one. "" = a new one.
	Token string
	// KeepPlace keeps the place in the queue for two minutes when the wait ends without the lock,
	// and keeps a lock whose reply came too late: the same Token asked again within that time has
	// either. Only with a Token. Release of a Grant with that Name and Token gives up both. If the
	// turn of the place comes while no request is under way, the waiter has the claim window to
	// ask, and is passed over after that until it asks.
	KeepPlace bool

	once      bool // it does not wait: it is asked once
	candidate bool // of an election: it waits by design
}

func (r Request) withDefaults(config Config) Request {
	r.TTL = cmp.Or(r.TTL, min(DefaultTTL, config.LongestTTL))
	if r.Mode == "" {
		r.Mode = ModeExclusive
		if r.Permits > 1 {
			r.Mode = ModePermits
		}
	}
	r.Permits, r.Take, r.Owner = cmp.Or(r.Permits, 1), cmp.Or(r.Take, 1), cmp.Or(r.Owner, config.Owner)
	if r.Token == "" {
		r.Token = secret.New()
	}
	return r
}

// capacity is how many permits there are, for the scripts; 0 where the mode has none.
func (r Request) capacity() int {
	if r.Mode != ModePermits {
		return 0
	}
	return r.Permits
}

var errToken = fmt.Errorf("%w: token: 22 characters of base64url", ErrInvalid)

// check checks a request with its defaults. It does not check the token: most are new.
func (r Request) check(name string, longest time.Duration) error {
	switch {
	case !names.Valid(name):
		return fmt.Errorf("%w: name: %s", ErrInvalid, names.Rule)
	case r.TTL < MinTTL || r.TTL > longest:
		return fmt.Errorf("%w: ttl %v: %v to %v", ErrInvalid, r.TTL, MinTTL, longest)
	case r.Wait < 0:
		return fmt.Errorf("%w: wait %v is negative", ErrInvalid, r.Wait)
	case r.Mode.letter() == nil:
		return fmt.Errorf("%w: mode %q: exclusive, shared or permits", ErrInvalid, r.Mode)
	case !names.Valid(r.Owner):
		return fmt.Errorf("%w: owner: up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -", ErrInvalid)
	}
	return r.checkPermits()
}

// whole is a TTL without its part of a millisecond, which Redis does not keep.
func whole(ttl time.Duration) time.Duration { return ttl.Truncate(time.Millisecond) }

func (r Request) checkPermits() error {
	switch {
	case r.Permits < 1 || r.Permits > MaxPermits:
		return fmt.Errorf("%w: permits %d: 1 to %d", ErrInvalid, r.Permits, MaxPermits)
	case r.Take < 1 || r.Take > r.Permits:
		return fmt.Errorf("%w: take %d: 1 to %d", ErrInvalid, r.Take, r.Permits)
	case r.Mode != ModePermits && r.Permits != 1:
		return fmt.Errorf("%w: more than one permit goes with mode permits", ErrInvalid)
	}
	return nil
}
