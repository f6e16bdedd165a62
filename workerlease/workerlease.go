package workerlease

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Bounds of what a caller may ask for.
const (
	MinTTL     = 100 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 30 * time.Second
	MaxBits    = 20   // width of a worker id
	MaxSlots   = 4096 // slots on one page of a ring
)

// What a pool can answer besides redisstore's own errors.
var (
	ErrLost      = redisstore.Loss("workerlease: the lease is no longer yours")
	ErrExhausted = redisstore.Refusal("workerlease: every worker id of the pool is taken")
	ErrLayout    = redisstore.Refusal("workerlease: the pool has another layout or epoch")
	ErrRequest   = redisstore.Refusal("workerlease: the request is not valid")
	ErrUnknown   = redisstore.Refusal("workerlease: no such pool")
)

// Exhausted is [ErrExhausted] with the time until the first lease can have ended.
type Exhausted struct{ Wait time.Duration }

// Error says how long to wait.
func (e *Exhausted) Error() string {
	return fmt.Sprintf("%v; the first can be free in %v", ErrExhausted, e.Wait)
}

// Unwrap gives ErrExhausted.
func (e *Exhausted) Unwrap() error { return ErrExhausted }

// OtherLayout is [ErrLayout] with what the pool has.
type OtherLayout struct {
	Layout string
	Epoch  time.Time
}

// Error says what the pool has.
func (e *OtherLayout) Error() string {
	return fmt.Sprintf("%v: it has %s since %s", ErrLayout, e.Layout, e.Epoch.Format(time.RFC3339))
}

// Unwrap gives ErrLayout.
func (e *OtherLayout) Unwrap() error { return ErrLayout }

// Pools are the worker-id pools of one store. It is safe for concurrent use.
type Pools struct{ store *redisstore.Store }

// New returns the pools of a store.
func New(store *redisstore.Store) *Pools { return &Pools{store} }

// Shape is what a pool's ids look like: fixed by its first grant.
type Shape struct {
	Layout string    // as package snowflake writes it
	Bits   int       // width of the worker id in it, 1 to MaxBits
	Epoch  time.Time // time origin of the ids, whole milliseconds
}

// Request says what to lease.
type Request struct {
	TTL        time.Duration // MinTTL to MaxTTL; 0 = DefaultTTL
	Identity   string        // a name for people to see, up to 200 characters without spaces; "" = none
	Shape      Shape         // of a pool that is new
	WantLayout bool          // refuse a pool of another layout than Shape's
	WantEpoch  bool          // refuse a pool of another epoch than Shape's
}

// Lease is a granted worker id. It is a value: whoever has its Token holds the lease.
type Lease struct {
	Pool      string
	WorkerID  int
	Token     string    // the secret that proves the lease
	Fence     int64     // larger than that of every grant of the pool before; below 2^53
	NotBefore time.Time // the window, by the Redis server's clock: stamps belong in [NotBefore, NotAfter)
	NotAfter  time.Time
	TTL       time.Duration
	Layout    string
	Epoch     time.Time
	Now       time.Time // the Redis server's time at the grant
}

var identityForm = regexp.MustCompile(`^[A-Za-z0-9._:~@-]{0,200}$`)

func (r Request) check() error {
	switch {
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return fmt.Errorf("%w: ttl %v: %v to %v", ErrRequest, r.TTL, MinTTL, MaxTTL)
	case !identityForm.MatchString(r.Identity):
		return fmt.Errorf("%w: identity: up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -", ErrRequest)
	case r.Shape.Bits < 1 || r.Shape.Bits > MaxBits || r.Shape.Layout == "":
		return fmt.Errorf("%w: a worker id of %d bits: 1 to %d", ErrRequest, r.Shape.Bits, MaxBits)
	}
	return nil
}

// Acquire leases a worker id. The errors: an *Exhausted, an *OtherLayout, ErrRequest; redisstore.ErrUnavailable (nothing was done),
// redisstore.ErrUnknownOutcome (a slot may be taken until its TTL has passed; acquire another).
func (p *Pools) Acquire(ctx context.Context, pool string, request Request) (Lease, error) {
	return p.acquire(ctx, pool, request, secret.New())
}

func (p *Pools) acquire(ctx context.Context, pool string, request Request, nonce string) (Lease, error) {
	if request.TTL == 0 {
		request.TTL = DefaultTTL
	}
	if err := request.check(); err != nil {
		return Lease{}, err
	}
	shape := request.Shape
	var layout, epoch string
	if request.WantLayout {
		layout = shape.Layout
	}
	if request.WantEpoch {
		epoch = fmt.Sprint(shape.Epoch.UnixMilli())
	}
	reply, err := p.store.Run(ctx, scripts.WorkerAcquire, p.keys(pool), nonce, request.TTL.Milliseconds(), request.Identity, layout, epoch,
		shape.Layout, shape.Epoch.UnixMilli(), shape.Bits)
	if err != nil {
		return Lease{}, err
	}
	return granted(reply, pool, nonce)
}

func granted(reply redisstore.Reply, pool, nonce string) (Lease, error) {
	switch reply.Word() {
	case "granted":
		lease := Lease{Pool: pool}
		err := reply.Scan(&lease.WorkerID, &lease.NotBefore, &lease.NotAfter, &lease.Fence, &lease.TTL, &lease.Now, &lease.Layout, &lease.Epoch)
		lease.Token = token(nonce, lease.NotBefore)
		return lease, err
	case "layout":
		var other OtherLayout
		if err := reply.Scan(&other.Layout, &other.Epoch); err != nil {
			return Lease{}, err
		}
		return Lease{}, &other
	case "exhausted":
		var exhausted Exhausted
		if err := reply.Scan(&exhausted.Wait); err != nil {
			return Lease{}, err
		}
		return Lease{}, &exhausted
	}
	return Lease{}, reply.Unexpected()
}

// Renewed is what a renewal came to.
type Renewed struct {
	NotAfter time.Time     // the new end of the window, by the Redis server's clock
	TTL      time.Duration // what the next renewal without a ttl counts
	Now      time.Time     // the Redis server's time at the renewal
}

// Renew moves the end of an open lease's window to ttl from now, or to the TTL that it was granted with if ttl is 0; the window never gets shorter. ErrLost: it has ended, was released, or is another's.
func (p *Pools) Renew(ctx context.Context, pool string, workerID int, leaseToken string, ttl time.Duration) (Renewed, error) {
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return Renewed{}, fmt.Errorf("%w: ttl %v: %v to %v", ErrRequest, ttl, MinTTL, MaxTTL)
	}
	nonce, from, ok := openToken(leaseToken)
	if !ok {
		return Renewed{}, ErrLost
	}
	milliseconds := ""
	if ttl != 0 {
		milliseconds = fmt.Sprint(ttl.Milliseconds())
	}
	reply, err := p.store.Run(ctx, scripts.WorkerRenew, p.keys(pool), workerID, nonce, from, milliseconds)
	if err != nil {
		return Renewed{}, err
	}
	if err := open(reply); err != nil {
		return Renewed{}, err
	}
	var renewed Renewed
	err = reply.Scan(&renewed.NotAfter, &renewed.TTL, &renewed.Now)
	return renewed, err
}

// Release ends a lease now. Repeating it is harmless. ErrLost: it had ended before, or is another's.
func (p *Pools) Release(ctx context.Context, pool string, workerID int, leaseToken string) error {
	nonce, from, ok := openToken(leaseToken)
	if !ok {
		return ErrLost
	}
	reply, err := p.store.Run(ctx, scripts.WorkerRelease, p.keys(pool), workerID, nonce, from)
	if err != nil {
		return err
	}
	return open(reply)
}

// open tells from a reply whether the lease was found open.
func open(reply redisstore.Reply) error {
	switch reply.Word() {
	case "ok":
		return nil
	case "lost":
		return ErrLost
	}
	return reply.Unexpected()
}

func (p *Pools) keys(pool string) []string {
	return []string{p.store.Key("worker", pool), p.store.Key("worker", pool, "ends")}
}

// token is the proof of a lease: its nonce and the start of its window, which together name one grant.
func token(nonce string, notBefore time.Time) string {
	return fmt.Sprintf("%s.%d", nonce, notBefore.UnixMilli())
}

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]{22}\.[0-9]{1,16}$`)

func openToken(token string) (nonce, notBefore string, ok bool) {
	if !tokenForm.MatchString(token) {
		return "", "", false
	}
	nonce, notBefore, _ = strings.Cut(token, ".")
	return nonce, notBefore, true
}
