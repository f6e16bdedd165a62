package lock

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func shared(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	read := Request{Mode: ModeShared}
	a, b := must(t, locks, "rw", read), must(t, others, "rw", read)
	rising(t, a.Fence(), b.Fence())
	wantHeld(t, others, "rw", Request{})
	writer := startWaiter(t, others, "rw", Request{}, 1)
	release(t, a)
	writer.stillWaits(t)
	release(t, b)
	w := writer.granted(t)
	rising(t, a.Fence(), b.Fence(), w.Fence())
	wantHeld(t, locks, "rw", read)
	var readers []waiter
	for i := range 5 {
		readers = append(readers, startWaiter(t, locks, "rw", read, i+1))
	}
	release(t, w)
	for _, reader := range readers { // all of them at once
		defer release(t, reader.granted(t))
	}
	wantHeld(t, locks, "rw", Request{})
}

func phaseFair(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	read := Request{Mode: ModeShared}
	a := must(t, locks, "fair", read)
	writer := startWaiter(t, others, "fair", Request{}, 1)
	wantHeld(t, locks, "fair", read)
	late := []waiter{startWaiter(t, locks, "fair", read, 2), startWaiter(t, others, "fair", read, 3)}
	second := startWaiter(t, others, "fair", Request{}, 4)
	release(t, a)
	w := writer.granted(t)
	for _, reader := range late {
		reader.stillWaits(t)
	}
	release(t, w)
	r1, r2 := late[0].granted(t), late[1].granted(t)
	second.cancel()
	second.refused(t)
	release(t, r1)
	third := must(t, locks, "fair", read) // together with r2, since the writer has gone
	release(t, r2)
	release(t, third)
}

func permits(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	three := Request{Permits: 3}
	two := Request{Permits: 3, Take: 2}
	a, b := must(t, locks, "sem", two), must(t, others, "sem", three)
	wantHeld(t, locks, "sem", three)
	wantHeld(t, locks, "sem", Request{})
	wantHeld(t, locks, "sem", Request{Mode: ModeShared})
	_, err := locks.Acquire(t.Context(), "sem", Request{Permits: 4})
	wantIs(t, err, ErrPermits, redisstore.ErrRefused)
	expect.Equal(t, "permits in the refusal", err.Error(), ErrPermits.Error()+": it has 3")
	big := startWaiter(t, others, "sem", two, 1)
	small := startWaiter(t, locks, "sem", three, 2)
	release(t, b)
	big.stillWaits(t)
	small.stillWaits(t) // it came later, although it would fit
	release(t, a)
	c, d := big.granted(t), small.granted(t)
	rising(t, a.Fence(), b.Fence(), c.Fence(), d.Fence())
	release(t, c)
	release(t, d)
	release(t, must(t, locks, "sem", Request{Permits: 4}))
}

// As with a client of the service: a lock with 1 permit is exclusive, unless its mode says permits.
func onePermit(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for request, want := range map[Request]Info{
		{}:                              {Mode: ModeExclusive},
		{Permits: 1}:                    {Mode: ModeExclusive},
		{Permits: 1, Mode: ModeShared}:  {Mode: ModeShared},
		{Mode: ModePermits}:             {Mode: ModePermits, Permits: 1},
		{Mode: ModePermits, Permits: 1}: {Mode: ModePermits, Permits: 1},
		{Permits: 2}:                    {Mode: ModePermits, Permits: 2},
	} {
		held := must(t, locks, "one", request)
		info, err := locks.Get(t.Context(), "one")
		expect.NoError(t, "Get one", err)
		expect.Equal(t, fmt.Sprintf("mode and permits of a lock by %+v", request), Info{Mode: info.Mode, Permits: info.Permits}, want)
		release(t, held)
	}
}
