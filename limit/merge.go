package limit

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// join reports whether the call is to be asked for by its own caller: none of that name is under
// way. Else it waits in the queue.
func (l *Limits) join(name string, c *call) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, busy := l.queues[name]
	if busy {
		l.queues[name] = append(waiting, c)
		return false
	}
	l.queues[name] = nil
	return true
}

// next asks for the calls that have come meanwhile, on a goroutine of its own.
func (l *Limits) next(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.queues[name]
	if len(waiting) == 0 {
		delete(l.queues, name)
		return
	}
	l.queues[name] = nil
	l.others.Go(func() {
		for len(waiting) > 0 {
			n := alike(waiting)
			l.ask(context.Background(), name, waiting[:n]) // as long as the store's timeout
			waiting = waiting[n:]
		}
		l.next(name)
	})
}

// alike returns how many calls at the head of the queue have the same rate and cost.
func alike(calls []*call) int {
	n := 1
	for n < len(calls) && calls[n].rate == calls[0].rate && calls[n].cost == calls[0].cost {
		n++
	}
	return n
}

// ask asks Redis once for calls of one name, rate and cost.
func (l *Limits) ask(ctx context.Context, name string, calls []*call) {
	rate, cost := calls[0].rate, calls[0].cost
	reply, err := onstore.Run(ctx, l.store, scripts.LimitTake, []string{l.key(name)}, cost, len(calls), rate.N,
		rate.Per.Microseconds(), rate.burst())
	var granted, remaining int
	var reset, wait int64
	switch {
	case err != nil:
	case reply.Word() != "ok":
		err = reply.Unexpected()
	default:
		err = reply.Scan(&granted, &remaining, &reset, &wait)
	}
	last := State{remaining, time.Duration(reset) * time.Microsecond}
	for i, c := range calls {
		switch {
		case err != nil:
			c.err = err
		case i < granted:
			c.state = last.before(int64(granted-1-i)*cost, rate)
		default:
			c.state, c.err = last, &ReachedError{last, time.Duration(wait) * time.Microsecond}
		}
		close(c.done)
	}
}

// before is the state before so much was taken, or given back.
func (s State) before(taken int64, rate Rate) State {
	burst := int64(rate.burst())
	return State{int(min(max(int64(s.Remaining)+taken, 0), burst)), max(s.Reset-rate.span(taken), 0)}
}
