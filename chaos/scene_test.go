//go:build check

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

const (
	// for every client of a round to know. It tells a hang; nothing comes near it.
	roundLimit = 5 * time.Minute
	// for an answer to be recorded that was sent while Redis was away; it is tried every two
	// seconds.
	owedLimit = 2 * time.Minute
)

// scene is one round: clients ask, a fault strikes, everything is mended, and each client asks
// until it knows its outcome.
type scene struct {
	*history

	t      testing.TB
	rig    *rig
	web    *http.Client
	lot    *rand.Rand
	fault  fault
	name   string
	orders []*order
	moment moment
	before int64 // how often the sentinels had named another master when the round began
	// they did so more often than the fault made them: they took a master that is alive for dead
	void bool

	once    sync.Once
	hit     chan struct{} // closed when the fault strikes
	mending sync.WaitGroup
	struck  time.Time
	whole   time.Time           // when Redis was whole again
	where   map[*order]position // how far each order had come when the fault struck
}

// moment is when a fault strikes: at a step of one order, or a while after the clients began.
type moment struct {
	step   step
	order  *order
	after  time.Duration
	chosen bool // by the test, not by lot
}

func (m moment) String() string {
	if m.step == "" {
		return fmt.Sprintf("%v after the clients began", m.after.Round(100*time.Microsecond))
	}
	return fmt.Sprintf("when the handler of %s has %s", m.order.name, m.step)
}

// play runs the round to its end. pace is how long a request takes when nothing is broken.
func (s *scene) play(pace time.Duration) {
	s.t.Helper()
	s.rig.ready()
	if s.fault.all {
		chaostest.Await(s.t, time.Minute, func() string { return s.rig.watch.Settled(s.t.Context()) })
	}
	s.before, s.hit = s.rig.watch.Switched(), make(chan struct{})
	s.prepare()
	s.choose(pace)
	ctx, cancel := context.WithTimeout(s.t.Context(), roundLimit)
	defer cancel()
	gate := make(chan struct{})
	var all sync.WaitGroup
	for _, c := range s.clients() {
		all.Go(func() {
			<-gate
			c.enter(ctx)
		})
	}
	if s.moment.step == "" {
		all.Go(func() {
			<-gate
			time.Sleep(s.moment.after)
			s.strike()
		})
	}
	close(gate)
	all.Wait()
	s.strike() // if the request never came to the step
	s.mending.Wait()
	s.askAgain(ctx)
	s.void = s.rig.watch.Switched()-s.before > map[bool]int64{true: 1}[s.fault.moves]
}

// prepare makes the orders: half of them under each policy, about half by tokens, every other token
// issued while the fault may strike.
func (s *scene) prepare() {
	doors := s.fault.doors(s.rig)
	for i := range *clients {
		set := doors[i/2%len(doors)]
		o := &order{operation: &operation{name: fmt.Sprintf("%s-%d", s.name, i), policy: []string{"hold", "takeover"}[i%2]}, header: byKey, ready: make(chan struct{})}
		o.watch = func(at step) { s.stepped(o, at) }
		for at := range set {
			o.doors = append(o.doors, set[(i/4+at)%len(set)])
		}
		s.nameIt(o)
		s.rig.book.expect(o.operation)
		s.orders = append(s.orders, o)
	}
}

// nameIt decides how an operation is known.
func (s *scene) nameIt(o *order) {
	drawn := s.lot.IntN(4)
	switch {
	case s.rig.issuer == nil || drawn < 2 && !s.fault.tokens:
		o.key = "key-of-" + o.name
		close(o.ready)
	case drawn%2 == 0:
		o.header = byToken
		o.key = (&client{scene: s, order: o, name: "client"}).issue(s.t.Context())
		close(o.ready)
	default:
		o.header, o.inTurn = byToken, true
	}
}

// clients are the parties of a round: one for each order, and for half of the orders a second one,
// which asks at the next door.
func (s *scene) clients() (all []*client) {
	for _, o := range s.orders {
		all = append(all, &client{scene: s, order: o, name: "client"})
		if s.lot.IntN(2) == 0 || s.fault.paused {
			all = append(all, &client{scene: s, order: o, name: "second client", at: 1})
		}
	}
	return all
}

// enter is all that a client does in a round.
func (c *client) enter(ctx context.Context) {
	switch {
	case c.name == "second client":
		select {
		case <-c.order.ready:
		case <-ctx.Done():
			return
		}
		if c.moment.chosen && c.moment.order == c.order {
			<-c.hit // before, the handler could run where the fault does not strike
		}
		// a double click is not quite at once
		time.Sleep(time.Duration(len(c.order.key)%5) * 5 * time.Millisecond)
	case c.order.inTurn:
		key := c.issue(ctx)
		c.order.mu.Lock()
		c.order.key = key
		c.order.mu.Unlock()
		close(c.order.ready)
	}
	c.settle(ctx)
	if c.moment.order == c.order {
		c.strike() // if it is over and never came to the step
	}
}

// choose draws the moment of the fault, unless the test has chosen it.
func (s *scene) choose(pace time.Duration) {
	if s.moment.step != "" {
		s.moment.order, s.moment.chosen = s.orders[0], true
		return
	}
	s.moment.step = []step{"", begun, effected, ended, ""}[s.lot.IntN(5)]
	s.moment.after = time.Duration(s.lot.Int64N(int64(pace) + 1))
	var may []*order
	for _, o := range s.orders {
		if s.fault.hits(s.rig, o) {
			may = append(may, o)
		}
	}
	s.moment.order = may[s.lot.IntN(len(may))]
}

// stepped is called at every step of an order's handler, which waits for it.
func (s *scene) stepped(o *order, at step) {
	o.came(at)
	if at == s.moment.step && o == s.moment.order {
		s.strike()
	}
}

// strike lets the fault happen, once, and has it mended.
func (s *scene) strike() {
	s.once.Do(func() {
		s.struck = time.Now()
		defer close(s.hit)
		where := map[*order]position{}
		for _, o := range s.orders {
			if s.fault.hits(s.rig, o) {
				where[o] = o.position()
			}
		}
		s.where = where
		mend := s.fault.strike(s)
		s.mending.Go(mend)
	})
}

// askAgain has every operation asked for through every door, when everything is whole again: what
// was answered has to stay.
func (s *scene) askAgain(ctx context.Context) {
	s.rig.ready()
	s.whole = time.Now()
	var all sync.WaitGroup
	for _, o := range s.orders {
		all.Go(func() {
			for at := range o.doors {
				c := &client{scene: s, order: o, name: "later client", at: at}
				c.settle(ctx)
				for end := time.Now().Add(owedLimit); s.owed(o) && ctx.Err() == nil && time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
					c.settle(ctx)
				}
			}
		})
	}
	all.Wait()
}

// owed reports whether a client has been given an answer of this operation that others cannot get
// yet but will: it was sent while Redis was away, and its process still tries to record it.
func (s *scene) owed(o *order) bool {
	answers := s.of(o.name)
	if len(answers) == 0 || s.fault.recorder || answers[len(answers)-1].code != inDoubt {
		return false
	}
	for _, a := range answers {
		if a.status == http.StatusCreated {
			return true
		}
	}
	return false
}

// judge checks the histories of all orders, and tells every violation with all that happened to its
// operation. It fails the test unless the round is void: with fewer acknowledgements than replicas
// a failover of a master that is alive loses what it confirmed meanwhile, which README.md tells
// about.
func (s *scene) judge() (found []violation) {
	s.t.Helper()
	complain := s.t.Errorf
	if s.void && *ack < 2 {
		complain = s.t.Logf
	}
	for _, o := range s.orders {
		broken := s.violations(o)
		for _, v := range broken {
			complain("%s, %s: broken: %s: %s", s.fault.name, s.moment, v.rule, v.text)
		}
		if len(broken) > 0 {
			s.t.Logf("struck at %s\n%s", s.struck.Format("05.000"), strings.TrimSpace(describe(s.rig.book.copied(o.operation), s.of(o.name))))
		}
		found = append(found, broken...)
	}
	return found
}

// violations are what is wrong with one order's history.
func (s *scene) violations(o *order) []violation {
	c := s.fault.circumstances
	c.whole = s.whole
	found := check(s.rig.book.copied(o.operation), s.of(o.name), c)
	for _, a := range s.of("a token for " + o.name) {
		if a.code != storeUnavailable && a.code != outcomeUnknown {
			found = append(found, violation{ruleFitting, a.String(), o.policy})
		}
	}
	return found
}
