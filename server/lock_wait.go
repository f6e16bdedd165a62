package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
)

// grant asks for a lock, and waits for it if the request may.
func (h *locks) grant(ctx context.Context, name string, request lock.Request) (lock.Grant, error) {
	if request.Wait == 0 {
		return h.locks.TryGrant(ctx, name, request)
	}
	leave, err := placeFor(&h.waiting, owner(ctx),
		"as many requests wait for locks here as may, or as many of this principal while others wait")
	if err != nil {
		return lock.Grant{}, err
	}
	defer leave()
	return h.locks.Grant(ctx, name, request)
}

// notGranted is the metrics' name for a refused request for a lock.
func notGranted(err error) string {
	switch {
	case errors.Is(err, lock.ErrHeld):
		return metrics.Held
	case errors.Is(err, lock.ErrInDoubt):
		return metrics.InDoubt
	case errors.Is(err, lock.ErrPermits):
		return metrics.Capacity
	}
	return metrics.Failed
}

// notObtained is the error of a lock that was not granted. One that is held says by whom, and since
// when, and not that the wait is over.
func notObtained(err error) error {
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		return held
	}
	return err
}

// heldSince is since when a lock is held; the zero time if that is not known.
func heldSince(err error) time.Time {
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		return held.Since
	}
	return time.Time{}
}

// deliver answers with a grant, and fails if the answer cannot be sent any more.
func deliver(r *request, grant lock.Grant) error {
	text, err := json.Marshal(api.LockGranted{
		Name: grant.Name, Lease: grant.Token, Fence: grant.Fence, Since: api.At(grant.Since), ExpiresAt: api.At(grant.Until),
		TTLMs:        grant.TTL.Milliseconds(),
		RenewEveryMs: renewEvery(grant.TTL), ServerTime: api.At(grant.Now),
	})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	noStore(r)
	r.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(text)))
	if err := r.JSONBlob(http.StatusCreated, text); err != nil {
		return err
	}
	if err := http.NewResponseController(r.Response()).Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// giveBack releases a lock whose answer did not reach its client. A client that keeps its place may
// ask again, and even have had the lock by another request: it gives back the lock itself.
func (h *locks) giveBack(ctx context.Context, request lock.Request, grant lock.Grant) {
	h.metrics.LockUndone(grant.Token)
	if request.KeepPlace {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := h.locks.Discard(ctx, grant); err != nil {
		h.log.WarnContext(ctx, "a lock that its client did not wait for could not be given back, and ends by itself", "error", err)
	}
}
