//go:build check

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const (
	// of each attempt here: no pause of this machine outlasts it.
	longLease = 10 * time.Second
	// how long clients ask for new operations.
	doubtSpan = 14 * time.Second
	seekers   = 12
)

// TestNoKeyIsInDoubtWhereNoHandlerBegan has clients ask two gateways for one operation after the
// other, some of them with answers of 1 MiB, while many of them hang up, the replicas that have to
// confirm are away for a while, and both gateways are restarted in turn, in order. A key that is in
// doubt afterwards is one whose handler had begun, and no handler began twice.
func TestNoKeyIsInDoubtWhereNoHandlerBegan(t *testing.T) {
	t.Parallel()
	d := newDoubt(t)
	ctx, end := context.WithTimeout(t.Context(), doubtSpan)
	defer end()
	var load sync.WaitGroup
	for i := range seekers {
		load.Go(func() { d.seek(ctx, i) })
	}
	load.Go(func() { d.hangUpByTheHundred(ctx) })
	d.faults()
	load.Wait()
	chaostest.Await(t, time.Minute, func() string { return chaostest.Confirm(t.Context(), d.rig.redis.WaitForMaster(nil), 2) })
	d.judge()
}

// doubt is a run of the test above.
type doubt struct {
	t   *testing.T
	rig *rig
	web *http.Client

	mu  sync.Mutex
	all []*operation

	refused, hungUp, cut, large atomic.Int64
}

func newDoubt(t *testing.T) *doubt {
	t.Helper()
	r := &rig{t: t, binary: chaostest.Coatcheck(t), book: openPolicy(t), redis: redistest.StartSentinel(t, 2)}
	r.ready()
	before := r.serveUpstream(routesFile(1, longLease))
	for _, name := range []string{"A", "B"} {
		r.gateways = append(r.gateways, newFront("gateway "+name, func() *child {
			return r.coatcheck("gateway", r.redis.URL(), 1, before...)
		}))
	}
	return &doubt{t: t, rig: r, web: web(t)}
}

// seek asks for one new operation after the other. A third of the clients hang up at any moment.
func (d *doubt) seek(ctx context.Context, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		o := &operation{name: fmt.Sprintf("seeker-%d-%d", number, n), policy: "hold"}
		if rand.N(30) == 0 {
			o.name += largeMark
			d.large.Add(1)
		}
		d.rig.book.expect(o)
		d.mu.Lock()
		d.all = append(d.all, o)
		d.mu.Unlock()
		patient, hangUp := context.WithCancel(context.WithoutCancel(ctx))
		if rand.N(3) == 0 {
			d.hungUp.Add(1)
			time.AfterFunc(rand.N(40*time.Millisecond), hangUp)
		}
		a := d.ask(patient, o)
		hangUp()
		switch a.status {
		case http.StatusServiceUnavailable:
			d.refused.Add(1)
		case 0:
			d.cut.Add(1)
		}
		time.Sleep(rand.N(60 * time.Millisecond))
	}
}

// ask sends the request for an operation once, to either gateway.
func (d *doubt) ask(ctx context.Context, o *operation) (a answer) {
	process, name := d.rig.gateways[rand.N(2)].process()
	a = answer{operation: o.name, client: "client", front: name, sent: time.Now()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, process.URL+"/hold", strings.NewReader(o.name+" of 12.99"))
	if err != nil {
		panic(err) // the URL is a process's own
	}
	request.Header.Set(byKey, o.name)
	exchange(d.web, request, &a)
	return a
}

// hangUpByTheHundred has clients repeat requests that have been asked before, and go at once.
func (d *doubt) hangUpByTheHundred(ctx context.Context) {
	for ctx.Err() == nil {
		var hundred sync.WaitGroup
		for range 100 {
			d.mu.Lock()
			var o *operation
			if len(d.all) > 0 {
				o = d.all[rand.N(len(d.all))]
			}
			d.mu.Unlock()
			if o == nil {
				continue
			}
			hundred.Go(func() {
				short, hangUp := context.WithTimeout(context.WithoutCancel(ctx), rand.N(20*time.Millisecond))
				defer hangUp()
				d.ask(short, o)
			})
		}
		hundred.Wait()
		d.hungUp.Add(100)
		time.Sleep(500 * time.Millisecond)
	}
}

// faults lets both replicas be away for a while, and then restarts the gateways in turn.
func (d *doubt) faults() {
	time.Sleep(time.Second)
	replicas := d.rig.redis.Replicas()
	for _, replica := range replicas {
		replica.Pause()
	}
	time.Sleep(4 * time.Second)
	for _, replica := range replicas {
		replica.Resume()
	}
	time.Sleep(2 * time.Second)
	for _, gateway := range d.rig.gateways {
		process, name := gateway.process()
		process.Finish()
		if code := process.Code(); code != 0 {
			d.t.Errorf("%s was asked to end: got exit code %d, want 0\n%s", name, code, process.Log)
		}
		gateway.restart()
	}
}

// judge asks for every operation until its end is known.
func (d *doubt) judge() {
	var asking sync.WaitGroup
	places := make(chan struct{}, 32)
	var answered, doubtful, unfounded, twice atomic.Int64
	for _, o := range d.all {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			a := d.settle(o)
			runs := len(d.rig.book.copied(o).runs)
			switch {
			case a.code == inDoubt && runs == 0:
				unfounded.Add(1)
				d.t.Errorf("%s: got %v, want an answer: its handler never began", o.name, a)
			case a.code == inDoubt:
				doubtful.Add(1)
			case a.status == http.StatusCreated:
				answered.Add(1)
			default:
				d.t.Errorf("%s: got %v, want the handler's answer", o.name, a)
			}
			if runs > 1 {
				twice.Add(1)
				d.t.Errorf("%s: its handler began %d times, want once", o.name, runs)
			}
		})
	}
	asking.Wait()
	d.t.Logf("%d operations, %d with answers of 1 MiB, %d requests whose client hung up, %d refused, %d without an answer: %d answered in the end, "+
		"%d in doubt after their handler had begun, %d in doubt for nothing, %d twice",
		len(d.all), d.large.Load(), d.hungUp.Load(), d.refused.Load(), d.cut.Load(), answered.Load(), doubtful.Load(), unfounded.Load(), twice.Load())
	if d.refused.Load() == 0 || d.hungUp.Load() == 0 || d.large.Load() == 0 {
		d.t.Error("a fault has met nothing: requests refused, hung up and large are wanted")
	}
}

// settle asks until the answer is final: until then an attempt may be under way.
func (d *doubt) settle(o *operation) (a answer) {
	for end := time.Now().Add(roundLimit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if a = d.ask(d.t.Context(), o); a.settled() {
			return a
		}
	}
	return a
}
