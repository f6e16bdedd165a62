//go:build check

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// The same rounds, against a guard as many have written it, find what is wrong with it: a client
// asks again after its owner was killed after the effect, the key expires, and the handler runs
// again.
func TestNaiveGuardIsFoundToRunTwice(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, book: openPolicy(t)}
	server := redistest.Start(t)
	for _, name := range []string{"A", "B"} {
		r.owners = append(r.owners, newFront("owner "+name, func() *child { return r.role(naiveRole, "CHAOS_STORE="+server.URL()) }))
	}
	s := &scene{history: &history{}, t: t, rig: r, web: web(t), lot: rand.New(rand.NewPCG(1, 1)), fault: kinds[0], name: "naive", moment: moment{step: effected}}
	s.play(0)
	if found := s.violations(s.orders[0]); !has(found, ruleOnce) {
		t.Errorf("not found: %s; found: %v\n%s", ruleOnce, found, describe(r.book.copied(s.orders[0].operation), s.of(s.orders[0].name)))
	}
}

// At length the guard is broken in all ways that it knows of, with a Redis that fails over.
func TestNaiveGuardUnderEveryFault(t *testing.T) {
	wanted := chaostest.Wanted(t)
	r := &rig{t: t, book: openPolicy(t), redis: redistest.StartSentinel(t, 2)}
	r.watch = chaostest.WatchSentinels(t, r.redis, downAfter)
	for _, name := range []string{"A", "B"} {
		r.owners = append(r.owners, newFront("owner "+name, func() *child { return r.role(naiveRole, "CHAOS_STORE="+r.redis.URL()) }))
	}
	lot, total := chaostest.NewLot(t), &tally{}
	for n := range *chaostest.Rounds {
		for i, kind := range kinds {
			kind.doors = atOwners
			known := []string{"owner killed", "owner stopped", "everything in Redis lost", "master killed", "master stopped"}
			if !slices.Contains(known, kind.name) || !wanted(kind.name) || !chaostest.Proving() && i > 0 {
				continue
			}
			s := &scene{history: &history{}, t: t, rig: r, web: web(t), lot: lot, fault: kind, name: fmt.Sprintf("n%df%d", n, i)}
			chosen := !kind.moves && !kind.flushed
			if chosen {
				s.moment.step = effected
			}
			s.play(100 * time.Millisecond)
			found := s.twice()
			total.add(s, found)
			if o := s.orders[0]; chosen && !slices.ContainsFunc(found, func(v violation) bool { return v.text == o.name }) {
				t.Errorf("%s, %s: it did not run twice\n%s", kind.name, s.moment, describe(r.book.copied(o.operation), s.of(o.name)))
			}
		}
	}
	t.Logf("in all:\n%s", total)
	chaostest.Prove(t, total.rows("a `SETNX` middleware", true)...)
	if total.broken[ruleOnce] == 0 {
		t.Error("nothing was found")
	}
}

// twice are the orders whose handler ran more than once, whatever their policy is called.
func (s *scene) twice() (found []violation) {
	for _, o := range s.orders {
		if written := s.rig.book.copied(o.operation); len(written.runs) > 1 {
			found = append(found, violation{ruleOnce, o.name, "hold"})
		}
	}
	return found
}

func has(found []violation, rule rule) bool {
	return slices.ContainsFunc(found, func(v violation) bool { return v.rule == rule })
}

// A master that is alive and was replaced goes on until it is told. What it has confirmed
// meanwhile, with a replica that has not been told either, is lost: that takes an acknowledgement
// by every replica that could have been promoted. No kill does this, but a failover by hand, a
// master that hangs for a moment, and a network that parts the servers do.
func TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		ack  int
		runs int
	}{{1, 2}, {2, 1}} {
		t.Run(fmt.Sprintf("ack %d", row.ack), func(t *testing.T) {
			t.Parallel()
			old, promoted, other := chaostest.ReplacedAlive(t)
			r := &rig{t: t, book: openPolicy(t)}
			s := &scene{history: &history{}, t: t, rig: r, web: web(t), fault: fault{circumstances: circumstances{redis: true}}}
			o := &order{operation: &operation{name: "order", policy: "hold"}, header: byKey, key: "key"}
			r.book.expect(o.operation)
			c := &client{scene: s, order: o, name: "client"}

			o.doors = []*front{r.ownerAt(old, row.ack)}
			if a, _ := c.ask(t.Context()); row.ack == 1 && !a.settled() {
				// on a busy machine a confirmation can take longer than is waited for
				c.settle(t.Context())
			}
			chaostest.Replicate(t, promoted, old, other)
			o.doors = []*front{r.ownerAt(promoted, row.ack)}
			c.settle(t.Context())

			written := r.book.copied(o.operation)
			found := s.violations(o)
			if len(written.runs) != row.runs || has(found, ruleOnce) != (row.runs > 1) || row.runs == 1 && len(found) > 0 {
				t.Errorf("%d runs, want %d; found %v\n%s", len(written.runs), row.runs, found, describe(written, s.of(o.name)))
			}
		})
	}
}

// ownerAt starts an owner on one server.
func (r *rig) ownerAt(server *redistest.Server, ack int) *front {
	return newFront("owner", func() *child { return r.role(ownerRole, "CHAOS_STORE="+server.URL(), fmt.Sprintf("CHAOS_ACK=%d", ack)) })
}
