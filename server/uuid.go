package server

import (
	"github.com/google/uuid"
)

// uuids makes UUIDs. Those of version 7 rise within this process, also when its clock goes back.
func (h *ids) uuids(r *request) error {
	asked := idOrder(r)
	version, newID := r.QueryParam("version"), uuid.NewV7
	switch {
	case version == "7", !has(r, "version"):
		version = "7"
	case version == "4":
		newID = uuid.NewRandom
	default:
		r.invalid("version", "4 (random) or 7 (rising with time)")
	}
	if r.err != nil {
		return r.err
	}
	ids := make([]uuid.UUID, asked.n)
	for i := range ids {
		id, err := newID()
		if err != nil {
			return err
		}
		ids[i] = id
	}
	h.metrics.IDs("uuid", len(ids))
	return asked.send(r, `{"version":`+version, func(dst []byte, i int) ([]byte, error) { return append(dst, ids[i].String()...), nil })
}
