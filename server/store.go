package server

import (
	"net/http"
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// storeAdmin are the handlers for operators of the store as a whole.
type storeAdmin struct {
	store   *redisstore.Store
	journal *journal
}

func (h *storeAdmin) routes(at *router) {
	// all state counts as possibly lost, once
	at.admin.handle("POST /store/restored", "redisstore.Restored", pagePrice, h.restored, no)
	at.admin.handle("POST /store/replicas-gone", "redisstore.ReplicasGone", pagePrice, h.replicasGone, allowQuery("place"))
}

func (h *storeAdmin) restored(r *request) error {
	r.noFields()
	r.mayTouch("store", "") // it concerns every name
	if r.err != nil {
		return r.err
	}
	marked, err := h.store.Restored(r.ctx())
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.StoreRestored, Value: new(int64(marked))})
	return r.answer(http.StatusOK, api.Restored{Marked: marked})
}

func (h *storeAdmin) replicasGone(r *request) error {
	r.noFields()
	r.mayTouch("store", "")
	var places []string // none: all that are noted and not attached
	if has(r, "place") {
		places = strings.Split(r.QueryParam("place"), ",")
	}
	if r.err != nil {
		return r.err
	}
	gone, err := h.store.ReplicasGone(r.ctx(), places...)
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.ReplicasGone, Value: new(int64(len(gone))), Reason: strings.Join(gone, ", ")})
	return r.answer(http.StatusOK, api.ReplicasGone{Gone: append([]string{}, gone...)})
}
