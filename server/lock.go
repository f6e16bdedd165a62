package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
)

const (
	longestWait = 24 * time.Hour // that may be asked for
	maxLocks    = 1000           // of a page
)

// acquireLock grants a lock, or stands in line for it until the client hangs up, the wait is over
// or the server stops. Nothing renews the lock but its client. Who hangs up while the answer is on
// its way looks like one who has read it, and holds the lock until its lease ends.
func (s *Server) acquireLock(c echo.Context) error {
	name, err := name(c, "name")
	if err != nil {
		return err
	}
	request, err := s.lockRequest(c)
	if err != nil {
		return err
	}
	ctx, cancel := s.waits.until(c.Request().Context())
	defer cancel()
	grant, err := s.grantLock(ctx, name, request)
	if err != nil {
		s.metrics.LockAsked(notGranted(err))
		return s.notObtained(ctx, name, err)
	}
	// the grant came after the client had hung up, or the request's time was over
	if c.Request().Context().Err() != nil {
		s.giveBack(ctx, request, grant)
		return &lock.HeldError{Left: -1}
	}
	s.metrics.LockGranted(grant.Token, grant.TTL)
	if err := deliver(c, grant); err != nil {
		s.giveBack(ctx, request, grant)
		return err
	}
	s.metrics.LockAsked(metrics.Granted)
	s.did(c, wire.Event{Kind: events.LockGranted, Name: name, Fence: grant.Fence, Holder: request.Owner})
	return nil
}

func (s *Server) lockRequest(c echo.Context) (request lock.Request, err error) {
	var asked wire.LockRequest
	if err := body(c, &asked); err != nil {
		return request, err
	}
	if request.TTL, err = millis("ttl_ms", asked.TTL, 0, lock.MinTTL, s.longestTTL()); err != nil {
		return request, err
	}
	if request.Wait, err = millis("wait_ms", asked.Wait, 0, 0, longestWait); err != nil {
		return request, err
	}
	// so that there is time to give the place back, and to say so
	request.Wait = min(request.Wait, s.config.RequestTimeout*9/10)
	if asked.Owner != "" && !names.Valid(asked.Owner) {
		return request, invalid("owner", nameRule)
	}
	request.Owner = asked.Owner
	if request.Owner == "" {
		request.Owner = address(c)
	}
	if err := lockPlace(c, &request); err != nil {
		return request, err
	}
	err = lockMode(&request, asked)
	return request, err
}

// lockPlace reads the token by which a client keeps its place in the queue over several requests.
func lockPlace(c echo.Context, request *lock.Request) (err error) {
	if len(c.Request().Header.Values(leaseHeader)) == 0 {
		return nil
	}
	if request.Token, err = leaseToken(c); err != nil {
		return err
	}
	if !secret.Valid(request.Token) {
		return invalid(leaseHeader, "the place in the queue: 22 characters of A–Z a–z 0–9 _ -, made at random for this lock")
	}
	request.KeepPlace = true
	return nil
}

// address is where a client that does not name itself comes from.
func address(c echo.Context) string {
	if at := c.RealIP(); names.Valid(at) {
		return at
	}
	return "unnamed"
}

func (s *Server) longestTTL() time.Duration {
	switch {
	case s.config.Locks.LongestTTL != 0:
		return s.config.Locks.LongestTTL
	case s.config.Locks.AfterLoss == lock.WaitAfterLoss:
		return lock.DefaultTTL
	}
	return lock.MaxTTL
}

// lockMode reads how the lock is to be held. Without a mode, a number of permits makes it one with
// permits.
func lockMode(request *lock.Request, asked wire.LockRequest) error {
	permits, err := count("permits", asked.Permits, lock.MaxCapacity)
	if err != nil {
		return err
	}
	take, err := count("take", asked.Take, permits)
	if err != nil {
		return err
	}
	request.Mode = lock.Mode(asked.Mode)
	if request.Mode == "" && permits > 1 {
		request.Mode = lock.Permits
	}
	switch request.Mode {
	case lock.Permits:
		request.Capacity, request.Permits = permits, take
	case lock.Exclusive, lock.Shared, "":
		if permits > 1 {
			return invalid("permits", "more than one goes with mode permits, or without a mode")
		}
	default:
		return invalid("mode", "exclusive, shared or permits")
	}
	return nil
}

// count reads a number from 1; nil is 1.
func count(field string, value *int64, most int) (int, error) {
	switch {
	case value == nil:
		return 1, nil
	case *value < 1 || *value > int64(most):
		return 0, invalid(field, "a whole number from 1 to "+strconv.Itoa(most))
	}
	return int(*value), nil
}

func (s *Server) renewLock(c echo.Context) error {
	grant, err := lockOf(c)
	if err != nil {
		return err
	}
	var asked wire.LockRenewal
	if err := body(c, &asked); err != nil {
		return err
	}
	if grant.TTL, err = millis("ttl_ms", asked.TTL, 0, lock.MinTTL, s.longestTTL()); err != nil {
		return err
	}
	renewed, err := s.extendLock(c.Request().Context(), grant)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, wire.LockRenewed{
		Name: grant.Name, ExpiresAt: renewed.Until, TTL: renewed.TTL.Milliseconds(), RenewEvery: renewEvery(renewed.TTL), ServerTime: renewed.Now,
	})
}

// lockOf reads the name from the path and the proof of the lease from the header.
func lockOf(c echo.Context) (grant lock.Grant, err error) {
	if grant.Name, err = name(c, "name"); err != nil {
		return grant, err
	}
	grant.Token, err = leaseToken(c)
	return grant, err
}

// releaseLock gives a lock back, or with a fence to force takes it from the holder who has that.
func (s *Server) releaseLock(c echo.Context) error {
	if has(c, "force") {
		return s.breakLock(c)
	}
	grant, err := lockOf(c)
	if err != nil {
		return err
	}
	if err := s.returnLock(c.Request().Context(), grant); err != nil {
		return err
	}
	s.did(c, wire.Event{Kind: events.LockReleased, Name: grant.Name})
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) breakLock(c echo.Context) error {
	if err := mustBe(c, access.Admin, "force"); err != nil {
		return err
	}
	name, err := name(c, "name")
	if err != nil {
		return err
	}
	const most = 1<<53 - 1
	fence, err := queryInt(c, "force", 0, 0, most)
	if err != nil {
		return err
	}
	if len(c.Request().Header.Values(leaseHeader)) > 0 {
		return invalid("force", "whoever has the lease gives it back without force")
	}
	minted, err := s.locks.Break(c.Request().Context(), name, fence)
	if errors.Is(err, lock.ErrNoHolder) {
		return &fault{wire.NotFound, "force", "nobody holds the lock with that fence"}
	}
	if err != nil {
		return err
	}
	s.metrics.LockBroken()
	s.did(c, wire.Event{Kind: events.LockBroken, Name: name, Fence: fence})
	noStore(c)
	return c.JSON(http.StatusOK, wire.LockBroken{Name: name, Fence: minted})
}

func (s *Server) showLock(c echo.Context) error {
	name, err := name(c, "name")
	if err != nil {
		return err
	}
	info, err := s.locks.Get(c.Request().Context(), name)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, lockInfo(name, info))
}

func (s *Server) listLocks(c echo.Context) error {
	n, err := queryInt(c, "n", 100, 1, maxLocks)
	if err != nil {
		return err
	}
	prefix, cursor, err := queryPage(c)
	if err != nil {
		return err
	}
	names, more, err := pageOf(c, prefix, cursor, int(n), itself, listNames(c, s.locks.Names))
	if err != nil {
		return err
	}
	page := wire.Locks{Locks: []wire.Lock{}}
	for _, name := range names {
		info, err := s.locks.Get(c.Request().Context(), name)
		if err != nil {
			return err
		}
		if len(info.Holders)+info.Queue == 0 {
			continue // it has just been given back
		}
		shown := lockInfo(name, info)
		shown.Queue = nil
		page.Locks = append(page.Locks, shown)
	}
	if more && len(names) > 0 {
		page.Next = names[len(names)-1]
	}
	noStore(c)
	return c.JSON(http.StatusOK, page)
}

// lockInfo writes who holds a lock and who waits for it.
func lockInfo(name string, info lock.Info) wire.Lock {
	shown := wire.Lock{
		Name: name, Mode: string(info.Mode), Permits: info.Capacity, Fence: info.Fence, Holders: []wire.LockHolder{}, Waiting: info.Queue, ServerTime: info.Now,
	}
	taken := func(permits int, mode lock.Mode) int {
		if mode != lock.Permits {
			return 0
		}
		return permits
	}
	for _, holder := range info.Holders {
		shown.Holders = append(shown.Holders, wire.LockHolder{
			Owner: holder.Owner, Fence: holder.Fence, Since: holder.Since, Until: holder.Until, Take: taken(holder.Permits, info.Mode),
		})
	}
	for _, waiter := range info.Waiters {
		shown.Queue = append(shown.Queue, wire.LockWaiter{Owner: waiter.Owner, Mode: string(waiter.Mode), Take: taken(waiter.Permits, waiter.Mode), Since: waiter.Since})
	}
	return shown
}

// extendLock renews a lock. What cannot be a token is no holder's: the scripts compare what they
// are given.
func (s *Server) extendLock(ctx context.Context, grant lock.Grant) (renewed lock.Grant, err error) {
	err = lock.ErrLost
	if secret.Valid(grant.Token) {
		renewed, err = s.locks.Renew(ctx, grant)
	}
	s.metrics.LockRenewed(grant.Token, renewed.TTL, kept(err))
	return renewed, err
}

// returnLock gives a lock back.
func (s *Server) returnLock(ctx context.Context, grant lock.Grant) error {
	err := lock.ErrLost
	if secret.Valid(grant.Token) {
		err = s.locks.Release(ctx, grant)
	}
	s.metrics.LockReleased(grant.Token, kept(err))
	return err
}

// kept is what they call a renewal or a release.
func kept(err error) string {
	switch {
	case err == nil:
		return metrics.Done
	case errors.Is(err, redisstore.ErrLost):
		return metrics.Gone
	}
	return metrics.Failed
}
