package server

import (
	"context"
	"net/http"

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
	at.admin.handle("POST /store/restored", "redisstore.Restored", h.told(h.store.Restored, events.StoreRestored), no)
	at.admin.handle("POST /store/replicas-gone", "redisstore.ReplicasGone", h.told(h.store.ReplicasGone, events.ReplicasGone), no)
}

// told takes in what an operator says of the store. It concerns every name.
func (h *storeAdmin) told(say func(context.Context) (int, error), kind string) func(*request) error {
	return func(r *request) error {
		r.mayTouch("store", "")
		if r.err != nil {
			return r.err
		}
		marked, err := say(r.ctx())
		if err != nil {
			return err
		}
		h.journal.did(r, api.Event{Kind: kind, Value: new(int64(marked))})
		return r.answer(http.StatusOK, api.Restored{Marked: marked})
	}
}
