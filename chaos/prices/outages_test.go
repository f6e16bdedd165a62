//go:build nightly

package prices

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// outage is what faults of one kind cost and lost, with one set of servers and one ack.
type outage struct {
	Setup    string `json:"setup"`
	Replicas int    `json:"replicas"`
	Ack      int    `json:"ack"`
	Fault    string `json:"fault"`
	Rounds   int    `json:"rounds"`

	// The longest time in milliseconds in which nothing of a kind was handed out.
	Values int64 `json:"values_ms"`
	Locks  int64 `json:"locks_ms"`
	IDs    int64 `json:"ids_ms"`

	Handed int            `json:"handed"`          // values, locks, ids and leases of worker ids
	Twice  map[string]int `json:"twice,omitempty"` // of those, by what they are
}

// setup is a set of servers, and the settings of ack that are measured on it at the same time.
type setup struct {
	name     string
	replicas int
	with     settings
	start    func(t *testing.T, replicas int, with settings) set
	quick    bool
}

var setups = []setup{
	{"Sentinel, 2 replicas", 2, published, startSentinels, true},
	{"Sentinel, 3 replicas", 3, published, startSentinels, false},
	{"Sentinel, 2 replicas, Redis's defaults", 2, defaults, startSentinels, false},
	{"Cluster, 2 replicas", 2, published, startCluster, false},
}

// servicesEach is how many services share each ack: with one alone a value that a failover loses
// would not be handed out again, since the process knows better.
const servicesEach = 2

func TestPricesOfOutages(t *testing.T) {
	beside(t)
	wanted, program := chaostest.Wanted(t), measured(t)
	var figures figures
	for _, row := range setups {
		if (!*outages && !row.quick) || !wanted(row.name) {
			continue
		}
		t.Run(row.name, func(t *testing.T) { figures.Outages = append(figures.Outages, row.measure(t, program)...) })
	}
	figures.publish(t, "outages", figures.outageTable)
}

// measure breaks one set in all ways under load.
func (row setup) measure(t *testing.T, program string) []outage {
	in := row.start(t, row.replicas, row.with)
	ctx, stop := context.WithCancel(t.Context())
	var loads []*load
	var waits []func()
	for ack := range row.replicas + 1 {
		store := []string{"--redis", in.url(), "--ack", fmt.Sprint(ack), "--prefix", fmt.Sprintf("ack%d:", ack)}
		declare(t, program, store...)
		l := &load{ack: ack}
		for n := range servicesEach {
			l.services = append(l.services, serve(t, program, append(store, "--identity", fmt.Sprint("host-", n))...))
		}
		loads = append(loads, l)
	}
	for _, l := range loads {
		waits = append(waits, l.begin(ctx))
	}
	defer func() {
		stop()
		for _, wait := range waits {
			wait()
		}
	}()
	rounds := &played{t: t, in: in, setup: row, loads: loads, tallies: map[int]*tally{}}
	for _, l := range loads {
		rounds.tallies[l.ack] = newTally()
	}
	rounds.settle(time.Now())
	for round := range *chaostest.Rounds {
		for _, strike := range strikes {
			if !*outages && strike.name != killed {
				continue
			}
			rounds.play(strike, round)
		}
	}
	return rounds.outages
}

// played are the faults that a set has seen, and what they came to.
type played struct {
	t       *testing.T
	in      set
	setup   setup
	loads   []*load
	tallies map[int]*tally
	outages []outage
}

// settle waits until all replicas confirm and every kind of thing is handed out again. A lease of a
// worker id may be in quarantine for longer.
func (p *played) settle(from time.Time) {
	p.t.Helper()
	chaostest.Await(p.t, patience, func() string { return whole(p.t.Context(), p.in, p.setup.replicas) })
	for _, l := range p.loads {
		for _, kind := range []string{values, locks, ids} {
			chaostest.Await(p.t, patience, func() string {
				if given, refusal := l.since(kind, from); !given {
					return fmt.Sprintf("ack %d gives no %s: %s", l.ack, kind, refusal)
				}
				return ""
			})
		}
	}
}

// play has one fault strike, waits until all is well again, and notes what it cost and lost.
func (p *played) play(strike strike, round int) {
	p.t.Helper()
	p.t.Logf("%s: %s, round %d", p.setup.name, strike.name, round+1)
	time.Sleep(nextRest)
	for _, l := range p.loads {
		p.tallies[l.ack].add(l.take())
	}
	from := time.Now()
	strike.do(p.t, p.in, p.setup.with)
	p.settle(time.Now())
	to := time.Now()
	time.Sleep(nextRest / 3) // what a wrong master has handed out shows once the right one goes on
	for _, l := range p.loads {
		given := l.take()
		p.note(outage{
			Setup: p.setup.name, Replicas: p.setup.replicas, Ack: l.ack, Fault: strike.name, Rounds: 1, Handed: len(given), Twice: p.tallies[l.ack].add(given),
			Values: l.longest(values, from, to).Milliseconds(), Locks: l.longest(locks, from, to).Milliseconds(), IDs: l.longest(ids, from, to).Milliseconds(),
		}, strike)
	}
}

// note adds a round to those of the same fault. With every replica nothing may be handed out twice;
// a lock may, where everything was lost.
func (p *played) note(one outage, strike strike) {
	p.t.Helper()
	text, err := json.Marshal(one)
	if err != nil {
		p.t.Fatalf("writing a round: %v", err)
	}
	p.t.Logf("%s", text)
	for what, n := range one.Twice {
		if one.Ack == p.setup.replicas && (what != locks || !strike.lost) {
			p.t.Errorf("%s, %s, ack %d of %d: got %d %s twice, want none", one.Setup, one.Fault, one.Ack, one.Replicas, n, what)
		}
	}
	at := slices.IndexFunc(p.outages, func(o outage) bool { return o.Ack == one.Ack && o.Fault == one.Fault })
	if at < 0 {
		p.outages = append(p.outages, one)
		return
	}
	sum := &p.outages[at]
	sum.Rounds += one.Rounds
	sum.Handed += one.Handed
	sum.Values, sum.Locks, sum.IDs = max(sum.Values, one.Values), max(sum.Locks, one.Locks), max(sum.IDs, one.IDs)
	for what, n := range one.Twice {
		sum.Twice[what] += n
	}
}

// outageTable is the table in Markdown: a row for each ack, a column for each fault.
func (f *figures) outageTable(*figures) string {
	var b strings.Builder
	b.WriteString("| | `ack` |")
	for _, s := range strikes {
		b.WriteString(" " + s.name + " |")
	}
	b.WriteString(" handed out | twice |\n|---|---|" + strings.Repeat("---|", len(strikes)+2) + "\n")
	for i, first := range f.Outages {
		if slices.IndexFunc(f.Outages, func(o outage) bool { return o.Setup == first.Setup && o.Ack == first.Ack }) < i {
			continue
		}
		handed, twice := 0, []string{}
		fmt.Fprintf(&b, "| %s | %d |", first.Setup, first.Ack)
		for _, s := range strikes {
			at := slices.IndexFunc(f.Outages, func(o outage) bool { return o.Setup == first.Setup && o.Ack == first.Ack && o.Fault == s.name })
			if at < 0 {
				b.WriteString(" – |")
				continue
			}
			cell := f.Outages[at]
			handed += cell.Handed
			for _, what := range []string{values, ids, leases, locks} {
				if n := cell.Twice[what]; n > 0 {
					twice = append(twice, fmt.Sprintf("%s %s, %s", thousands(int64(n)), what, s.name))
				}
			}
			fmt.Fprintf(&b, " %s, %s |", seconds(max(cell.Values, cell.Locks)), seconds(cell.IDs))
		}
		fmt.Fprintf(&b, " %s | %s |\n", thousands(int64(handed)), strings.Join(append(twice, "0")[:max(1, len(twice))], "; "))
	}
	return b.String()
}

func TestOutagesHaveARowForEachAck(t *testing.T) {
	f := figures{Outages: []outage{
		{Setup: "s", Ack: 1, Fault: killed, Values: 2400, Locks: 1000, IDs: 100, Handed: 1000},
		{Setup: "s", Ack: 1, Fault: wiped, Values: 5000, Locks: 9900, IDs: 100, Handed: 500, Twice: map[string]int{locks: 1}},
		{Setup: "s", Ack: 2, Fault: killed, Values: 13200, IDs: 100, Handed: 7},
	}}
	_, rows, _ := strings.Cut(f.outageTable(nil), strings.Repeat("---|", len(strikes)+4)+"\n")
	want := "| s | 1 | 2.4, 0.10 | – | 9.9, 0.10 | – | – | 1,500 | 1 locks, master wiped |\n| s | 2 | 13.2, 0.10 | – | – | – | – | 7 | 0 |\n"
	if rows != want {
		t.Errorf("got\n%s\nwant\n%s", rows, want)
	}
}
