package health

import (
	"context"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Incarnation is one life of a server's state. It ends when another server takes over, or when the
// server starts without its data: from then on acknowledged writes may be missing.
type Incarnation struct {
	ID       string // the server's master_replid, 40 hex digits
	Previous string // the one that was noted beside the state before, "" if none
	Change   Change
}

// Change is the change of an incarnation since the state's marker was written.
type Change string

// The changes that [IncarnationOf] returns.
const (
	Same Change = "same" // the state was written under this incarnation
	// First means that there was no marker: this Redis is new, or all of its state is gone.
	First   Change = "new"
	Changed Change = "changed" // a failover, or a restart without the last data
)

// IncarnationOf reads which incarnation of the server holds the state, and notes it in the store's
// marker. Since it writes, it also reports whether the server takes writes now. The first caller
// after a change gets it, later ones get Same. In a cluster it is about the marker's shard.
func IncarnationOf(ctx context.Context, store *redisstore.Store) (Incarnation, error) {
	reply, err := store.Run(ctx, scripts.Incarnation, []string{store.Key("incarnation", "store")})
	if err != nil {
		return Incarnation{}, err
	}
	found := Incarnation{Change: Change(reply.Word())}
	switch found.Change {
	case Same, First:
		err = reply.Scan(&found.ID)
	case Changed:
		err = reply.Scan(&found.ID, &found.Previous)
	default:
		err = reply.Unexpected()
	}
	return found, err
}
