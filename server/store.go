package server

import (
	"net/http"

	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// storeAdmin are the handlers for operators of the store as a whole.
type storeAdmin struct {
	store   *redisstore.Store
	journal *journal
}

func (h *storeAdmin) routes(at *router) {
	at.admin.handle("POST /store/restored", "redisstore.Restored", h.restored, no)
}

// restored has all state count as possibly lost, once. It concerns every name.
func (h *storeAdmin) restored(r *request) error {
	r.mayTouch("store", "")
	if r.err != nil {
		return r.err
	}
	marked, err := h.store.Restored(r.ctx())
	if err != nil {
		return err
	}
	h.journal.did(r, wire.Event{Kind: events.StoreRestored, Value: new(int64(marked))})
	return r.answer(http.StatusOK, wire.Restored{Marked: marked})
}
