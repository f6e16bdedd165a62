package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/redisconn"
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
	return incarnationAt(ctx, store, marker{name: "store"})
}

// marker is one for a master: a part of its name, which lies in one of the master's slots, and the
// master's address, "" where there is one master.
type marker struct{ name, at string }

// markers returns one for every master that owns slots, in the order of their addresses.
func markers(ctx context.Context, store *redisstore.Store) ([]marker, error) {
	if store.Mode() != redisstore.ModeCluster {
		return []marker{{name: "store"}}, nil
	}
	owners, err := pipeline.Of(store).Owners(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", redisstore.ErrUnavailable, err)
	}
	all := make([]marker, 0, len(owners))
	for at, slot := range owners {
		all = append(all, marker{redisconn.SlotTags()[slot], at})
	}
	slices.SortFunc(all, func(a, b marker) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

// incarnations is [IncarnationOf] for every master that owns slots, by markers of their own. An
// error names the master.
func incarnations(ctx context.Context, store *redisstore.Store) (map[marker]Incarnation, error) {
	all, err := markers(ctx, store)
	if err != nil {
		return nil, err
	}
	found := make([]Incarnation, len(all))
	var group errgroup.Group
	for i, marker := range all {
		group.Go(func() (err error) {
			found[i], err = incarnationAt(ctx, store, marker)
			return err
		})
	}
	err = group.Wait()
	by := map[marker]Incarnation{}
	for i, marker := range all {
		by[marker] = found[i]
	}
	return by, err
}

func incarnationAt(ctx context.Context, store *redisstore.Store, at marker) (Incarnation, error) {
	reply, err := onstore.Run(ctx, store, scripts.Incarnation, []string{onstore.Key(store, "incarnation", at.name)})
	if err != nil && at.at != "" {
		err = &pipeline.NodeError{Addr: at.at, Err: err}
	}
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
