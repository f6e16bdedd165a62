package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

const (
	longestWait = 24 * time.Hour // that may be asked for
	maxLocks    = 1000           // of a page
)

// locks are the handlers of /lock.
type locks struct {
	locks   *lock.Locks
	metrics *metrics.Service
	journal *journal
	log     *slog.Logger
	longest time.Duration   // TTL that may be asked for
	patient time.Duration   // how long a request waits at most
	waiting share.Quota     // of requests that wait
	life    context.Context // requests wait until it ends
}

func (h *locks) routes(at *router) {
	at.use.handle("POST /lock/:name", "lock.Acquire", smallPrice, h.acquire, no)
	held := at.use.where(present)
	held.handle("PUT /lock/:name", "lock.Renew", smallPrice, h.renew, no)
	// with force: admin
	held.handle("DELETE /lock/:name", "lock.Release", smallPrice, h.release, allowQuery("force"))
	at.read.handle("GET /lock/:name", "lock.Get", lockPrice, h.get, no)
	at.read.handle("GET /lock", "lock.List", pagePrice, h.list, allowQuery("prefix", "cursor", "n"))
}

// acquire grants a lock, or queues for it until the client hangs up, the wait is over or the server
// stops. Only the client renews the lock. A client that hangs up while the answer is on its way
// looks like one that has read it, and holds the lock until its lease ends.
func (h *locks) acquire(r *request) error {
	name := r.name("name")
	asked := h.request(r)
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	grant, err := h.grant(ctx, name, asked)
	if err != nil {
		h.metrics.LockAsked(notGranted(err))
		return notObtained(err)
	}
	// the grant came after the client had hung up, or the request's time was over
	if r.ctx().Err() != nil {
		h.giveBack(ctx, asked, grant)
		return &lock.HeldError{Left: -1}
	}
	h.metrics.LockGranted(grant.Token, grant.TTL)
	if err := deliver(r, grant); err != nil {
		h.giveBack(ctx, asked, grant)
		return err
	}
	h.metrics.LockAsked(metrics.Granted)
	h.journal.did(r, api.Event{Kind: events.LockGranted, Name: name, Fence: grant.Fence, Holder: asked.Owner})
	return nil
}

func (h *locks) request(r *request) (request lock.Request) {
	var asked api.LockRequest
	r.body(&asked)
	request.TTL = r.millis("ttl_ms", asked.TTLMs, 0, lock.MinTTL, h.longest)
	request.Wait = min(r.millis("wait_ms", asked.WaitMs, 0, 0, longestWait), h.patient)
	if asked.Owner != "" && !names.Valid(asked.Owner) {
		r.invalid("owner", nameRule)
	}
	request.Owner = cmp.Or(asked.Owner, address(r))
	// the token by which a client keeps its place in the queue over several requests
	request.Token = r.chosenLease()
	request.KeepPlace = request.Token != ""
	lockMode(r, &request, asked)
	return request
}

// address is where a client that does not name itself comes from.
func address(c echo.Context) string {
	if at := c.RealIP(); names.Valid(at) {
		return at
	}
	return "unnamed"
}

// longestTTL is the longest that may be asked for.
func longestTTL(config lock.Config) time.Duration {
	switch {
	case config.LongestTTL != 0:
		return config.LongestTTL
	case config.AfterLoss == lock.AfterLossWait:
		return lock.DefaultTTL
	}
	return lock.MaxTTL
}

// lockMode reads how the lock is to be held. Without a mode, a number of permits makes it one with
// permits.
func lockMode(r *request, request *lock.Request, asked api.LockRequest) {
	permits := count(r, "permits", asked.Permits, lock.MaxPermits)
	take := count(r, "take", asked.Take, permits)
	request.Mode = lock.Mode(asked.Mode)
	if request.Mode == "" && permits > 1 {
		request.Mode = lock.ModePermits
	}
	switch request.Mode {
	case lock.ModePermits:
		request.Permits, request.Take = permits, take
	case lock.ModeExclusive, lock.ModeShared, "":
		if permits > 1 {
			r.invalid("permits", "more than one goes with mode permits, or without a mode")
		}
	default:
		r.invalid("mode", "exclusive, shared or permits")
	}
}

// count reads a number from 1; nil is 1.
func count(r *request, field string, value *int64, most int) int {
	if value == nil {
		return 1
	}
	if *value < 1 || *value > int64(most) {
		r.invalid(field, "a whole number from 1 to "+strconv.Itoa(most))
	}
	return int(*value)
}

// renew renews a lock. A malformed token is no holder's, so the lock is lost.
func (h *locks) renew(r *request) error {
	grant := lockOf(r)
	var asked api.LockRenewal
	r.body(&asked)
	grant.TTL = r.millis("ttl_ms", asked.TTLMs, 0, lock.MinTTL, h.longest)
	if r.err != nil {
		return r.err
	}
	renewed, err := lock.Grant{}, lock.ErrLost
	if secret.Valid(grant.Token) {
		renewed, err = h.locks.Renew(r.ctx(), grant)
	}
	h.metrics.LockRenewed(grant.Token, renewed.TTL, kept(err))
	return r.result(api.LockRenewed{
		Name: grant.Name, ExpiresAt: api.At(renewed.Until), TTLMs: renewed.TTL.Milliseconds(), RenewEveryMs: renewEvery(renewed.TTL),
		ServerTime: api.At(renewed.Now),
	}, err)
}

// lockOf reads the name from the path and the proof of the lease from the header.
func lockOf(r *request) lock.Grant { return lock.Grant{Name: r.name("name"), Token: r.lease()} }

// release gives a lock back, or with a fence to force takes it from the holder who has that.
func (h *locks) release(r *request) error {
	r.noFields()
	if has(r, "force") {
		return h.breakOpen(r)
	}
	grant := lockOf(r)
	if r.err != nil {
		return r.err
	}
	err := lock.ErrLost
	if secret.Valid(grant.Token) {
		err = h.locks.Release(r.ctx(), grant)
	}
	h.metrics.LockReleased(grant.Token, kept(err))
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.LockReleased, Name: grant.Name})
	return r.done()
}

// kept is the metrics' name for the outcome of a renewal or a release.
func kept(err error) string {
	switch {
	case err == nil:
		return metrics.Done
	case errors.Is(err, redisstore.ErrLost):
		return metrics.Gone
	}
	return metrics.Failed
}

func (h *locks) breakOpen(r *request) error {
	r.mustBe(access.Admin, "force")
	name := r.name("name")
	const most = 1<<53 - 1
	fence := r.int("force", 0, 0, most)
	if r.hasLease() {
		r.invalid("force", "the holder gives its lease back without force")
	}
	if r.err != nil {
		return r.err
	}
	minted, err := h.locks.Break(r.ctx(), name, fence)
	if errors.Is(err, lock.ErrNoHolder) {
		return &fault{api.NotFound, "force", "the lock has no holder with that fence"}
	}
	if err != nil {
		return err
	}
	h.metrics.LockBroken()
	h.journal.did(r, api.Event{Kind: events.LockBroken, Name: name, Fence: fence})
	return r.answer(http.StatusOK, api.LockBroken{Name: name, Fence: minted})
}

func (h *locks) get(r *request) error {
	name := r.name("name")
	if r.err != nil {
		return r.err
	}
	info, err := h.locks.Get(r.ctx(), name)
	return r.result(lockInfo(name, info), err)
}

func (h *locks) list(r *request) error {
	asked := r.list(maxLocks)
	if r.err != nil {
		return r.err
	}
	page, next, err := listed(r.ctx(), asked, h.locks.List, func(ctx context.Context, name string) (api.Lock, bool, error) {
		info, err := h.locks.Summary(ctx, name)
		shown := lockInfo(name, info)
		shown.Queue = nil
		return shown, len(info.Holders)+info.Queue > 0, err // else it has just been given back
	})
	return r.result(api.Locks{Locks: page, Next: next}, err)
}

func lockInfo(name string, info lock.Info) api.Lock {
	shown := api.Lock{
		Name: name, Mode: string(info.Mode), Permits: info.Permits, Fence: info.Fence, Holders: []api.LockHolder{}, MoreHolders: info.Further,
		Waiting:    info.Queue,
		ServerTime: api.At(info.Now),
	}
	taken := func(permits int, mode lock.Mode) int {
		if mode != lock.ModePermits {
			return 0
		}
		return permits
	}
	for _, holder := range info.Holders {
		shown.Holders = append(shown.Holders, api.LockHolder{
			Owner: holder.Owner, Fence: holder.Fence, Since: api.At(holder.Since), Until: api.At(holder.Until),
			Take: taken(holder.Take, info.Mode),
		})
	}
	for _, waiter := range info.Waiters {
		shown.Queue = append(shown.Queue, api.LockWaiter{Owner: waiter.Owner, Mode: string(waiter.Mode),
			Take: taken(waiter.Take, waiter.Mode), Since: api.At(waiter.Since)})
	}
	return shown
}
