//go:build nightly

package prices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// failover is what a fault costs in which nothing is lost that all replicas have to confirm. In a
// cluster no server proves that, so there it counts as a loss.
type failover struct {
	Row string `json:"row"`

	// Milliseconds from when a write is confirmed by all again until the next one was handed out.
	ID      *int64 `json:"id_ms,omitempty"`
	Counter *int64 `json:"number_ms,omitempty"`
	Lock    *int64 `json:"lock_ms,omitempty"`
	Segment *int64 `json:"segment_ms,omitempty"`
	Worker  int64  `json:"new_worker_id_ms"` // of a process that is started then

	// Values that were left out.
	CounterJump int64 `json:"number_jump"`
	SegmentJump int64 `json:"segment_jump"`
}

// failovers are the rows. The service waits for all replicas (--ack all).
var failovers = []struct {
	name     string
	start    func(t *testing.T, replicas int, with settings) set
	replicas int
	strike   func(t *testing.T, in set)
	loss     bool // it counts as one
}{
	{"Sentinel, 2 replicas, master killed", startSentinels, 2, struck(killed), false},
	{"Sentinel, 2 replicas, master stopped", startSentinels, 2, struck(stopped), false},
	{"Sentinel, 2 replicas, replaced by hand", startSentinels, 2, struck(byHand), false},
	{"Sentinel, 2 replicas, a backup of the master", startSentinels, 2, func(t *testing.T, in set) { in.master().Backup() }, false},
	{"Sentinel, the first replica", startSentinels, 0, func(t *testing.T, in set) {
		chaostest.Replicate(t, in.master(), redistest.Start(t))
	}, false},
	{"Cluster, 1 replica, master killed", startCluster, 1, struck(killed), true},
	{"Cluster, 1 replica, master stopped", startCluster, 1, struck(stopped), true},
	{"Cluster, 1 replica, replaced by hand", startCluster, 1, struck(byHand), true},
	{"Cluster, 1 replica, a backup of the master", startCluster, 1, func(t *testing.T, in set) { in.master().Backup() }, false},
	{"Cluster, 1 replica, the slot moved", startCluster, 1, func(_ *testing.T, in set) {
		move := in.(*cluster).set.StartMove("{" + name + "}")
		move.Rest(0)
		move.Finish()
	}, true},
	{"Cluster, 1 replica, the master imported another slot", startCluster, 1, func(_ *testing.T, in set) {
		in.(*cluster).set.Import(in.master())
	}, true},
}

// struck is the fault of that name.
func struck(name string) func(*testing.T, set) {
	i := slices.IndexFunc(strikes, func(s strike) bool { return s.name == name })
	return func(t *testing.T, in set) { strikes[i].do(t, in, published) }
}

// TestPricesOfFailovers fails where something jumps, or a template has ended, that counts as no
// loss.
func TestPricesOfFailovers(t *testing.T) {
	beside(t)
	wanted, program := chaostest.Wanted(t), measured(t)
	var figures figures
	t.Run("rows", func(t *testing.T) {
		for _, row := range failovers {
			if !*all && row.name != failovers[0].name || !wanted(row.name) {
				continue
			}
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				got := measureFailover(t, program, row.start(t, row.replicas, published), row.replicas, row.strike, row.loss)
				got.Row = row.name
				note(t, &figures, &figures.Failovers, got)
			})
		}
	})
	figures.publish(t, "failovers", figures.failoverTable)
}

// segmentStep is the default step of a segment: what was fetched and not used is left out when a
// process ends, and nothing else.
const segmentStep = 1000

func measureFailover(t *testing.T, program string, in set, replicas int, strike func(*testing.T, set), loss bool) (got failover) {
	chaostest.Await(t, patience, func() string { return whole(t.Context(), in, replicas) })
	flags := []string{"--redis", in.url(), "--ack", "all"}
	declare(t, program, flags...)
	s := &scene{t: t, service: serve(t, program, append(flags, "--identity", name)...)}
	_, drawn := s.use(true)
	var last int64
	number := s.service.number
	if loss {
		number = s.service.count
	}
	until(t, "a number", time.Now(), func(ctx context.Context) (err error) { last, err = number(ctx); return err })

	strike(t, in)
	chaostest.Await(t, patience, func() string { return whole(t.Context(), in, max(replicas, 1)) })
	from := time.Now()
	fresh := make(chan int64)
	go func() { // a process that is started only now
		defer close(fresh)
		other := serve(t, program, append(flags, "--identity", "another")...)
		fresh <- until(t, "a new process leases a worker id", from, other.leased).Milliseconds()
	}()
	var first, next int64
	s.askAll(from, []asked{
		{"an id", &got.ID, func(ctx context.Context) error { _, err := s.service.ids(ctx, 1); return err }},
		{"a number", &got.Counter, func(ctx context.Context) (err error) { first, err = number(ctx); return err }},
		{"a lock", &got.Lock, func(ctx context.Context) error { _, err := s.service.lock(ctx, time.Minute); return err }},
		{"a segment's id", &got.Segment, func(ctx context.Context) (err error) { next, err = s.service.segment(ctx); return err }},
	})
	got.Worker = <-fresh
	got.CounterJump, got.SegmentJump = first-last-1, next-drawn-1
	if !loss && (got.CounterJump != 0 || got.SegmentJump < 0 || got.SegmentJump > segmentStep) {
		t.Errorf("after a fault in which nothing was lost: the counter jumps by %d, want 0, and the segment by %d, want 0 to %d",
			got.CounterJump, got.SegmentJump, segmentStep)
	}
	return got
}

// number asks for the counter's next value by a template that has no room for a jump.
func (s *service) number(ctx context.Context) (int64, error) {
	var answer struct {
		Value int64 `json:"value"`
	}
	err := s.ask(ctx, "POST", "/incr/"+name+"?template=P-%7Bn:4%7D", nil, &answer)
	return answer.Value, err
}

// failoverTable is the table in Markdown.
func (f *figures) failoverTable(before *figures) string {
	order := map[string]int{}
	for i, row := range failovers {
		order[row.name] = i
	}
	slices.SortFunc(f.Failovers, func(a, b failover) int { return order[a.Row] - order[b.Row] })
	var b strings.Builder
	b.WriteString("| `ack` all; until the next one, in seconds | id | number | lock | segment's id | worker id of a new process " +
		"| numbers jump by | segment jumps by |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range f.Failovers {
		var old failover
		if i := slices.IndexFunc(before.Failovers, func(o failover) bool { return o.Row == row.Row }); i >= 0 {
			old = before.Failovers[i]
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", row.Row,
			both(old.ID, row.ID, seconds), both(old.Counter, row.Counter, seconds), both(old.Lock, row.Lock, seconds),
			both(old.Segment, row.Segment, seconds), seconds(row.Worker), thousands(row.CounterJump), thousands(row.SegmentJump))
	}
	return b.String()
}
