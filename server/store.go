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
	at.admin.handle("POST /store/restored", "redisstore.Restored", h.told(h.restored, events.StoreRestored), no)
	at.admin.handle("POST /store/replicas-gone", "redisstore.ReplicasGone", h.told(h.replicasGone, events.ReplicasGone),
		allowQuery("place"))
}

func (h *storeAdmin) restored(r *request) (int, error) { return h.store.Restored(r.ctx()) }

func (h *storeAdmin) replicasGone(r *request) (int, error) {
	return h.store.ReplicasGone(r.ctx(), strings.FieldsFunc(r.QueryParam("place"), func(c rune) bool { return c == ',' })...)
}

// told takes in what an operator says of the store. It concerns every name.
func (h *storeAdmin) told(say func(*request) (int, error), kind string) func(*request) error {
	return func(r *request) error {
		r.mayTouch("store", "")
		if r.err != nil {
			return r.err
		}
		marked, err := say(r)
		if err != nil {
			return err
		}
		h.journal.did(r, api.Event{Kind: kind, Value: new(int64(marked))})
		return r.answer(http.StatusOK, api.Restored{Marked: marked})
	}
}
