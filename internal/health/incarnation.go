package health

import (
	"context"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Incarnation is one life of a server's state. It ends when another server takes over, or when the
// server starts without its data: from then on acknowledged writes may be missing.
type Incarnation struct {
	ID     string // the server's master_replid, 40 hex digits; "" if it shows none
	Losses int64  // how often a change may have lost something since the marker was first written
	Change Change
	Fact   string // why the server shows no incarnation; "" if it does
}

// Change is the change of an incarnation since the state's marker was written.
type Change string

// The changes that [IncarnationOf] returns.
const (
	Same Change = "same" // the state was written under this incarnation
	// First means that there was no marker: this Redis is new, or all of its state is gone.
	First     Change = "new"
	Continued Change = "continued" // a failover, a restart or a renamed history that lost nothing
	Changed   Change = "changed"   // a failover or a restart that may have lost something
	None      Change = "none"      // the server shows no incarnation
)

// IncarnationOf reads which incarnation of the server holds the state, and notes it in the store's
// marker. Since it writes, it also reports whether the server takes writes now. The first caller
// after a change gets it, later ones get Same with one more loss. In a cluster it is about the
// marker's shard.
func IncarnationOf(ctx context.Context, store *redisstore.Store) (Incarnation, error) {
	reply, err := store.Run(ctx, scripts.Incarnation, []string{store.Key("incarnation", "store")})
	if err != nil {
		return Incarnation{}, err
	}
	found := Incarnation{Change: Change(reply.Word())}
	switch found.Change {
	case Same, First, Continued, Changed:
		err = reply.Scan(&found.ID, &found.Losses)
	case None:
		err = reply.Scan(&found.Fact)
	default:
		err = reply.Unexpected()
	}
	return found, err
}
