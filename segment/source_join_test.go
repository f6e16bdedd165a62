//go:build check

package segment_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// leafsOf are the stores of a process, with connections of its own.
func leafsOf(t *testing.T, tables []leafTable) (leafs []*segment.LeafAlloc) {
	t.Helper()
	for _, table := range tables {
		leafs = append(leafs, table.another(t))
	}
	return leafs
}

// process is the tables as one process has them.
func process(t *testing.T, tables ...leafTable) *segment.Striped {
	t.Helper()
	stores := map[int]segment.Source{}
	for i, leaf := range leafsOf(t, tables) {
		stores[i] = leaf
	}
	return striped(t, stores, len(stores))
}

func restripe(t *testing.T, from, to []leafTable, start int64) (floor int64, err error) {
	t.Helper()
	return segment.Restripe(t.Context(), segment.Restriping{Tag: "orders", From: leafsOf(t, from), To: leafsOf(t, to), Start: start, Step: 10})
}

// Three servers, of which one is killed and comes back, under takers of eight processes.
func TestStripedOverThreeServersOutlivesOne(t *testing.T) {
	servers := []*sqltest.Server{sharedServer(t, sqltest.MariaDB), sqltest.Start(t, sqltest.PostgreSQL), sharedServer(t, sqltest.PostgreSQL)}
	var tables []leafTable
	for _, server := range servers {
		tables = append(tables, newLeafTable(t, server))
	}
	if _, err := restripe(t, nil, tables, 1); err != nil {
		t.Fatalf("restripe: got error %v, want none", err)
	}
	var taken book
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		s := process(t, tables...)
		all.Go(func() { taken.keep(ctx, s, 1<<30) })
	}
	awaitMore(t, &taken, 50)
	servers[1].Kill()
	away := taken.mark()
	awaitMore(t, &taken, taken.count()+100)
	if since := taken.residues(away, 3); since[0] == 0 || since[2] == 0 {
		t.Errorf("with store 1 away the ranges are of %v", since)
	}
	servers[1].Restart(t)
	back := taken.mark()
	for taken.residues(back, 3)[1] == 0 {
		awaitMore(t, &taken, taken.count()+1)
	}
	cancel()
	all.Wait()
	taken.check(t)
	if taken.faults > 8 { // what was under way when the context ended
		t.Errorf("%d calls failed, and two stores were there all the time", taken.faults)
	}
}

func (b *book) mark() int { return b.count() }

// residues counts the ranges since a mark by what their ids leave when divided by n.
func (b *book) residues(mark int, n int64) map[int64]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := map[int64]int{}
	for _, taken := range b.ranges[mark:] {
		count[taken.Lo%n]++
	}
	return count
}

// Stores join, leave and are replaced while processes of the old and of the new configuration take
// what they can.
func TestStoresJoinAndLeaveWithoutAnIDTwice(t *testing.T) {
	maria, postgres := sharedServer(t, sqltest.MariaDB), sharedServer(t, sqltest.PostgreSQL)
	a, b, c, d := newLeafTable(t, maria), newLeafTable(t, postgres), newLeafTable(t, maria), newLeafTable(t, postgres)
	var taken book
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	configurations := [][]leafTable{{a, b}, {a, b, c}, {d, b, c}, {b}, {a, b}, {b, a}, {a, b, c}}
	var from []leafTable
	for _, to := range configurations {
		for range 2 { // processes of the new configuration may start before its time
			s := process(t, to...)
			all.Go(func() { taken.keep(ctx, s, 1<<30) })
		}
		floor, err := restripe(t, from, to, 1)
		expect.NoError(t, "restripe", err)
		mark := taken.mark()
		awaitMore(t, &taken, mark+30)
		// an old store in its old place hands out nothing, unless the new configuration has it
		// there as well
		for _, leaf := range from {
			if len(from) != len(to) {
				tag := segment.StripeTag("orders", slices.IndexFunc(from, func(l leafTable) bool { return l.LeafAlloc == leaf.LeafAlloc }), len(from))
				_, err := leaf.Take(ctx, tag, 0)
				refused(t, err, segment.ErrRetired)
			}
		}
		// by mistake, or since it is unknown whether it has ended
		again, err := restripe(t, from, to, 1)
		if err != nil || again < floor {
			t.Errorf("a second time: %d after %d, %v", again, floor, err)
		}
		from = to
	}
	awaitMore(t, &taken, taken.count()+30)
	cancel()
	all.Wait()
	taken.check(t)
}

// It fails in the middle, at whatever store, and is repeated.
func TestRestripingThatFailsIsRepeated(t *testing.T) {
	maria, postgres := sharedServer(t, sqltest.MariaDB), sharedServer(t, sqltest.PostgreSQL)
	from := []leafTable{newLeafTable(t, maria), newLeafTable(t, postgres)}
	to := append(slices.Clone(from), newLeafTable(t, maria))
	if _, err := restripe(t, nil, from, 1000); err != nil {
		t.Fatalf("restripe: got error %v, want none", err)
	}
	var taken book
	taken.keep(t.Context(), process(t, from...), 20)
	for broken := range 2 + 3 { // each of the old stores, then each of the new ones
		old, fresh := leafsOf(t, from), leafsOf(t, to)
		dead := segment.NewLeafAlloc(maria.OpenPlain(t, linkThatIsCut(t, maria.Addr()), from[0].database), segment.MySQL, segment.LeafConfig{Timeout: 200 * time.Millisecond})
		if broken < 2 {
			old[broken] = dead
		} else {
			fresh[broken-2] = dead
		}
		_, err := segment.Restripe(t.Context(), segment.Restriping{Tag: "orders", From: old, To: fresh, Start: 1, Step: 10})
		if !errors.Is(err, redisstore.ErrRefused) {
			t.Errorf("with store %d broken: %v", broken, err)
		}
		// Takers that can take now take on.
		for _, tables := range [][]leafTable{from, to} {
			taken.note(process(t, tables...).Take(t.Context(), "orders", 0))
		}
	}
	floor, err := restripe(t, from, to, 1)
	expect.NoError(t, "restripe", err)
	taken.keep(t.Context(), process(t, to...), taken.count()+20)
	_, err = process(t, from...).Take(t.Context(), "orders", 0)
	refused(t, err, segment.ErrRetired)
	if ranges := taken.check(t); ranges[0].Lo < 1000 || ranges[len(ranges)-1].Lo < floor {
		t.Errorf("the first is %+v, the last %+v, the floor %d", ranges[0], ranges[len(ranges)-1], floor)
	}
}

// linkThatIsCut is an address where no server answers.
func linkThatIsCut(t *testing.T, target string) string {
	t.Helper()
	link := redistest.StartProxy(t, target, nil)
	link.Swallow()
	return link.Addr()
}

// A store that is gone for good cannot be asked how far it was.
func TestRestripingWithoutAStoreThatIsGoneNeedsAStart(t *testing.T) {
	server := sharedServer(t, sqltest.MariaDB)
	a, b, c := newLeafTable(t, server), newLeafTable(t, server), newLeafTable(t, server)
	if _, err := restripe(t, nil, []leafTable{a, b}, 1); err != nil {
		t.Fatalf("restripe: got error %v, want none", err)
	}
	var taken book
	taken.keep(t.Context(), process(t, a, b), 20)
	move := segment.Restriping{Tag: "orders", From: []*segment.LeafAlloc{a.LeafAlloc, nil}, To: []*segment.LeafAlloc{a.LeafAlloc, c.LeafAlloc}, Step: 10}
	_, err := segment.Restripe(t.Context(), move)
	refused(t, err, segment.ErrFloor)
	if _, err := c.Take(t.Context(), segment.StripeTag("orders", 1, 2), 0); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("a new store was opened: %v", err)
	}
	move.Start = 1_000_000
	if floor, err := segment.Restripe(t.Context(), move); floor != 1_000_000 || err != nil {
		t.Errorf("the floor is %d, %v", floor, err)
	}
	taken.keep(t.Context(), process(t, a, c), 40)
	if ranges := taken.check(t); ranges[len(ranges)-1].Lo < 1_000_000 {
		t.Errorf("the last is %+v", ranges[len(ranges)-1])
	}
	for name, wrong := range map[string]segment.Restriping{
		"no new store":  {Tag: "orders", Step: 10},
		"a nil":         {Tag: "orders", Step: 10, To: []*segment.LeafAlloc{nil}},
		"no step":       {Tag: "orders", To: move.To},
		"no tag":        {Step: 10, To: move.To},
		"below 0":       {Tag: "orders", Step: 10, To: move.To, Start: -1},
		"a tag's name":  {Tag: "or ders", Step: 10, To: move.To},
		"never striped": {Tag: "others", Step: 10, To: move.To, From: move.To},
	} {
		if _, err := segment.Restripe(t.Context(), wrong); !errors.Is(err, segment.ErrRequest) && !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("Restripe with %s: got error %v, want %v or %v", name, err, segment.ErrRequest, segment.ErrUnknownTag)
		}
	}
}

// Segments over a striped source over three tables.
func TestSegmentsOverStripes(t *testing.T) {
	server := sharedServer(t, sqltest.PostgreSQL)
	tables := []leafTable{newLeafTable(t, server), newLeafTable(t, server), newLeafTable(t, server)}
	if _, err := restripe(t, nil, tables, 1); err != nil {
		t.Fatalf("restripe: got error %v, want none", err)
	}
	var all sync.WaitGroup
	var ids sync.Map
	for range 3 {
		s := segment.New(process(t, tables...), segment.Config{MaxStep: 50})
		defer s.Close()
		for range 4 {
			all.Go(func() {
				for range 300 {
					id, err := s.Next(t.Context(), "orders")
					if err != nil {
						t.Errorf("Next: got error %v, want none", err)
						return
					}
					if _, twice := ids.LoadOrStore(id, true); twice {
						t.Errorf("%d was handed out twice", id)
					}
				}
			})
		}
	}
	all.Wait()
}
