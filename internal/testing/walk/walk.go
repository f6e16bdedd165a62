//go:build steps

package walk

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

var (
	asked  = flag.Int("walk.rounds", 0, "random orders of each scene; 0 = 2000, or 200 of a slow one")
	deeper = flag.Int("walk.deeper", 0, "more preemptions where a scene bounds them")
	seed   = flag.Uint64("walk.seed", 0, "repeats the random orders of a run that printed it; 0 = another one each time")
	from   = flag.Int("walk.from", 0, "the first round; with a seed and one round, it is repeated alone")
	most   = flag.Int("walk.most", 2_000_000, "orders of a scene beyond which its walk fails, since it would not end")
)

// Task is what one goroutine of a scene does.
type Task struct {
	Name string
	Do   func()
}

// Play is one run of a scene.
type Play struct {
	Tasks []Task
	// is called when all tasks have returned: what does not hold, nil if all does
	Check func() error
	// stops what the run has left; nil = nothing
	Close func()
}

// Scene is what is run in many orders.
type Scene struct {
	// Begin makes a run's own state. It is called in a synctest bubble, without points.
	Begin func(t *testing.T) Play
	// Ticks is how often in a run the walker may let time pass by Tick though a goroutine could go
	// on; 0 = time passes only when all wait.
	Ticks int
	Tick  time.Duration // 0 = a millisecond
	// Preemptions is how often Every leaves a goroutine that could go on, for another one or to let
	// time pass; 0 = as often as it can.
	Preemptions int
	// Slow is set where Begin takes milliseconds: it opens a store.
	Slow bool
}

// few orders of each scene run with -short, and as many at random if it has more.
const few = 100

// Every runs the scene in every order, and fails at the first in which its check fails. With -short
// it leaves most orders of a large scene. Then its random orders are the same in each run, unless
// -walk.seed is given.
func Every(t *testing.T, scene Scene) {
	t.Helper()
	began, limit := time.Now(), *most
	if testing.Short() {
		limit = few
	}
	runs, whole, fault := scene.search(t, limit)
	if fault != nil {
		t.Fatalf("order %d of every one: %v", runs, fault)
	}
	bound := "all that there are"
	switch {
	case !whole && !testing.Short():
		t.Fatalf("more than %d orders: make the scene smaller, or bound its preemptions", limit)
	case !whole:
		random, rounds := cmp.Or(*seed, 1), cmp.Or(*asked, few)
		scene.random(t, random, *from, rounds)
		bound = fmt.Sprintf("the first, and %d random ones of seed %d; without -short all", rounds, random)
	case scene.Preemptions > 0:
		bound = fmt.Sprintf("all with at most %d preemptions", scene.Preemptions+*deeper)
	}
	t.Logf("%d orders, %s, in %v", runs, bound, time.Since(began).Round(time.Millisecond))
}

// search runs the scene in one order after another until its check fails, or limit is reached. It
// returns how many runs there were, whether they were all, and the failure with the order.
func (s Scene) search(t *testing.T, limit int) (runs int, whole bool, fault error) {
	t.Helper()
	all := &every{}
	if s.Preemptions > 0 {
		all.budget = s.Preemptions + *deeper
	}
	for more := true; more; more = all.another() {
		if runs == limit {
			return runs, false, nil
		}
		runs++
		all.depth = 0
		if fault := s.run(t, all.choose); fault != nil {
			return runs, false, fault
		}
	}
	if all.uneven > 0 {
		t.Logf("%d of the orders went another way than before: something in the scene is random", all.uneven)
	}
	return runs, true, nil
}

// Rounds runs the scene in random orders. Many rounds are shared out among processes.
func Rounds(t *testing.T, scene Scene) {
	t.Helper()
	rounds := cmp.Or(*asked, 2000)
	if *asked == 0 && scene.Slow {
		rounds = 200
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64() | 1
	}
	began := time.Now()
	if *from == 0 && rounds > share {
		inProcesses(t, first, rounds)
	} else {
		scene.rounds(t, first, *from, rounds)
	}
	if !t.Failed() {
		t.Logf("%d random rounds, seed %d, in %v", rounds, first, time.Since(began).Round(time.Millisecond))
	}
}

// rounds runs the scene in random orders, from one of the rounds that a seed has.
func (s Scene) rounds(t *testing.T, seed uint64, from, rounds int) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	for round := from; round < from+rounds; round++ {
		var fault error
		if round%2 == 0 {
			fault = s.drawn(t, seed, round)
		} else {
			fault = s.loose(t)
		}
		if fault != nil || t.Failed() {
			t.Fatalf("round %d of seed %d (-args -walk.seed=%d -walk.from=%d -walk.rounds=1): %v", round, seed, seed, round, fault)
		}
	}
}

// random runs the scene in random orders that the walker chooses, from a round that a seed has.
func (s Scene) random(t *testing.T, seed uint64, from, rounds int) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	for round := from; round < from+rounds; round++ {
		if fault := s.drawn(t, seed, round); fault != nil || t.Failed() {
			t.Fatalf("round %d of seed %d (-short -args -walk.seed=%d -walk.from=%d -walk.rounds=1): %v", round, seed, seed, round, fault)
		}
	}
}

// drawn is a run in which the walker chooses by a seed and the number of the round.
func (s Scene) drawn(t *testing.T, seed uint64, round int) error {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	return s.run(t, func(options []option) int { return random.IntN(len(options)) })
}

// parked is a goroutine at a point.
type parked struct {
	runner *runner
	point  string
	goOn   chan struct{}
}

// runner is a goroutine of a run.
type runner struct {
	number int
	name   string
}

// run is one run of a scene.
type run struct {
	mu      sync.Mutex
	runners map[string]*runner // by the runtime's number
	parked  []parked
	running int // tasks that have not returned
	free    bool
	trace   []string
}

func (s Scene) run(t *testing.T, choose func([]option) int) (fault error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		play := s.Begin(t)
		synctest.Wait() // what it has begun comes to an end, or waits
		r := &run{runners: map[string]*runner{}, running: len(play.Tasks)}
		step.Hook(r.at)
		defer step.Hook(nil)
		for _, task := range play.Tasks {
			go func() {
				defer r.ended()
				r.join(task.Name)
				step.At("begins")
				task.Do()
			}()
			synctest.Wait() // their numbers are in order
		}
		fault = r.walk(s, choose)
		if fault == nil {
			fault = play.Check()
		}
		if play.Close != nil {
			play.Close()
		}
		if fault != nil {
			fault = fmt.Errorf("%w, in the order\n\t%s", fault, strings.Join(r.trace, "\n\t"))
		}
	})
	return fault
}

// loose is a run in which all goroutines run at once, and pause at random.
func (s Scene) loose(t *testing.T) (fault error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		play := s.Begin(t)
		step.Hook(pause)
		defer step.Hook(nil)
		var all sync.WaitGroup
		for _, task := range play.Tasks {
			all.Go(func() {
				step.At("begins")
				task.Do()
			})
		}
		all.Wait()
		synctest.Wait() // what the tasks have begun comes to an end, or waits
		fault = play.Check()
		if play.Close != nil {
			play.Close()
		}
	})
	return fault
}

// pause gives way at random, or spins for some microseconds.
func pause(string) {
	switch r := rand.Uint32N(64); {
	case r == 0:
		for range rand.Uint32N(200) {
			runtime.Gosched()
		}
	case r < 24:
		for range r {
			runtime.Gosched()
		}
	}
}

// walk chooses who goes on, until all tasks have returned. Then it lets go of all.
func (r *run) walk(s Scene, choose func([]option) int) error {
	tick := cmp.Or(s.Tick, time.Millisecond)
	ticks, waited := s.Ticks, 0
	var last *runner
	defer r.letGo()
	for {
		synctest.Wait()
		ready, running := r.ready()
		switch {
		case running == 0:
			return nil
		case len(ready) == 0:
			if waited++; waited > 10_000 {
				return errors.New("hangs")
			}
			time.Sleep(tick << (waited / 100))
			continue
		}
		i := choose(options(ready, last, ticks > 0))
		if i == len(ready) {
			ticks--
			r.trace = append(r.trace, fmt.Sprintf("%v pass", tick))
			time.Sleep(tick)
			continue
		}
		p := order(ready, last)[i]
		last, waited = p.runner, 0
		r.trace = append(r.trace, p.runner.name+" goes on from: "+p.point)
		r.release(p)
	}
}

// order puts the goroutine that ran last in front of the others.
func order(ready []parked, last *runner) []parked {
	ready = slices.Clone(ready)
	slices.SortStableFunc(ready, func(a, b parked) int {
		switch {
		case a.runner == last:
			return -1
		case b.runner == last:
			return 1
		}
		return cmp.Compare(a.runner.number, b.runner.number)
	})
	return ready
}

func options(ready []parked, last *runner, clock bool) []option {
	could := slices.ContainsFunc(ready, func(p parked) bool { return p.runner == last })
	all := make([]option, 0, len(ready)+1)
	for i := range ready {
		all = append(all, option{preempts: could && i > 0})
	}
	if clock {
		all = append(all, option{preempts: true})
	}
	return all
}

func (r *run) at(point string) {
	r.mu.Lock()
	if r.free {
		r.mu.Unlock()
		return
	}
	p := parked{r.runnerLocked(), point, make(chan struct{})}
	r.parked = append(r.parked, p)
	r.mu.Unlock()
	<-p.goOn
}

func (r *run) join(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runnerLocked().name = name
}

func (r *run) runnerLocked() *runner {
	id := goroutine()
	if r.runners[id] == nil {
		n := len(r.runners)
		r.runners[id] = &runner{n, fmt.Sprintf("goroutine %d", n)}
	}
	return r.runners[id]
}

func (r *run) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

func (r *run) ready() ([]parked, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.parked), r.running
}

func (r *run) release(p parked) {
	r.mu.Lock()
	r.parked = slices.DeleteFunc(r.parked, func(other parked) bool { return other.goOn == p.goOn })
	r.mu.Unlock()
	close(p.goOn)
}

func (r *run) letGo() {
	r.mu.Lock()
	r.free = true
	for _, p := range r.parked {
		close(p.goOn)
	}
	r.parked = nil
	r.mu.Unlock()
	synctest.Wait()
}

// goroutine is the runtime's number of this goroutine.
func goroutine() string {
	var text [40]byte
	n := runtime.Stack(text[:], false)
	return strings.Fields(string(text[:n]))[1]
}
