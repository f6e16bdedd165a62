//go:build check

package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// longer is the lease of a holder whose link is cut.
const longer = 2 * time.Second

// How many links are cut at a time: under a holder in this process, and under a command, which is
// three processes.
const (
	holdersAtOnce  = 25
	commandsAtOnce = 6
)

// trialResults is what many trials found.
type trialResults struct {
	sync.Mutex

	trials, twice int
	both          time.Duration // in which two believed to hold, in all
	// between the moment a holder was told and that of the next one's grant, at least
	nearest   time.Duration
	histories [][]porcupine.Operation // of the trials under a holder
}

func (s *trialResults) String() string {
	return fmt.Sprintf("%d trials: in %d of them two believed to hold, for %v in all; told %v before the next grant at least", s.trials, s.twice, s.both, s.nearest)
}

// add takes a trial in: when a holder was seen to know that its lock is over, when it was last seen
// to count on it, and when the next one got it.
func (s *trialResults) add(reported, believed, got int64) {
	s.Lock()
	defer s.Unlock()
	lead := time.Duration(got - reported)
	if s.trials == 0 || lead < s.nearest {
		s.nearest = lead
	}
	s.trials++
	if both := time.Duration(believed - got); both > 0 {
		s.twice++
		s.both += both
	}
}

// record takes the history of a trial in.
func (s *trialResults) record(history ...porcupine.Operation) {
	s.Lock()
	defer s.Unlock()
	s.histories = append(s.histories, history)
}

// prove writes down what was found.
func (s *trialResults) prove(t *testing.T, role, fault string) *trialResults {
	t.Helper()
	who := whoTheyAre[role]
	chaostest.Prove(t, evidence.Row{
		Suite: "locks", Promise: evidence.Locks, Who: who, Peer: who != evidence.Ours, Layer: evidence.InProcess, Fault: fault,
		Faults: int64(s.trials), Operations: 2 * int64(s.trials), Violations: int64(s.twice),
	})
	return s
}

// never fails the test if two believed at any time, or a history has no explanation with fences
// that rise.
func (s *trialResults) never(t *testing.T) {
	t.Helper()
	t.Log(s)
	if s.twice > 0 {
		t.Errorf("two believed to hold at once: %v", s)
	}
	for _, history := range s.histories {
		if result := explained(fencedModel, history); result != porcupine.Ok {
			t.Errorf("got %v, want a history that can be explained: %s", result, stuck(fencedModel, history))
		}
	}
}

// sometimes fails the test if it was not found that two believed.
func (s *trialResults) sometimes(t *testing.T) {
	t.Helper()
	t.Log(s)
	if s.twice == 0 {
		t.Errorf("%v: nothing was found", s)
	}
}

// A holder's link is cut, whenever and however: it is told before the next one holds.
func TestHolderIsToldBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openFenced(t.Context(), redisstore.Config{URL: server.URL()}, window)
	expect.NoError(t, "opening the locks", err)
	cutMany(t, *trials, holdersAtOnce, near, func(i int, found *trialResults) error {
		return cutHolder(t, i, near, behind(t, i, server, func(url string) (locker, error) {
			return openFenced(t.Context(), redisstore.Config{URL: url}, window)
		}), found)
	}).prove(t, "fenced", "the link of a holder cut").never(t)
}

// The same with SETNX, a TTL and renewals, whose answers are the only thing that tells: two
// believe.
func TestNaiveHolderIsFoundToBeToldTooLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openNaive(server.URL())
	expect.NoError(t, "opening naive locks", err)
	naives := 12
	if chaostest.Proving() {
		naives = *trials / 10
	}
	cutMany(t, max(naives, 12), holdersAtOnce, near, func(i int, found *trialResults) error {
		return cutHolder(t, i, near, behind(t, i, server, func(url string) (locker, error) { return openNaive(url) }), found)
	}).prove(t, "naive", "the link of a holder cut").sometimes(t)
}

// cutMany makes that many trials, so many at a time, and closes near, which is what the next ones
// lock with.
func cutMany(t *testing.T, n, atOnce int, near locker, cut func(i int, found *trialResults) error) *trialResults {
	t.Helper()
	found := &trialResults{}
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			err := cut(i, found)
			for again := 0; again < 20 && tellsNothing(err); again++ {
				t.Logf("trial %d: %v", i, err)
				err = cut(i, found)
			}
			if err != nil {
				t.Errorf("trial %d: %v", i, err)
			}
		})
	}
	all.Wait()
	expect.Error(t, "Close", near.Close(), nil)
	expect.Equal(t, "trials that came to an end", found.trials, n)
	return found
}

// errStood says that a trial tells nothing.
var errStood = errors.New("the machine stood still for so long that no process could have acted in time")

// tellsNothing reports whether what was tried came to no end that can be judged: the machine stood
// still, or a call to Redis over an uncut link was not answered within its own deadline.
func tellsNothing(err error) bool {
	return errors.Is(err, errStood) || errors.Is(err, redisstore.ErrUnknownOutcome) || errors.Is(err, redisstore.ErrUnavailable)
}

// await has the next one stand in line. The channel has the moment at which it got the lock, if it
// did.
func await(ctx context.Context, near locker, w wish) <-chan next {
	line := make(chan next, 1)
	go func() {
		held, err := near.Acquire(ctx, w)
		line <- next{held, now(), err}
	}()
	return line
}

// next is the one who gets a lock next.
type next struct {
	holding

	got int64
	err error
}

// release gives the lock back. If a machine that stood still kept it from being renewed it may be
// lost by then, and a peer may hear no answer.
func (n next) release(ctx context.Context, near locker) error {
	kept := time.Duration(now() - n.got)
	err := n.Release(ctx)
	_, peer := near.(*naive)
	switch {
	case err == nil:
		return nil
	case peer, near.Lost(err) && kept > longer/2:
		return fmt.Errorf("%w: the next one's release after %v: %w", errStood, kept, err)
	}
	return fmt.Errorf("the next one's release: %w", err)
}

// remote is a way to lock over a link that can be cut.
type remote struct {
	locker

	cut, mend func()
}

// behind opens a way to lock that goes to the server over a link. When it is cut what is sent is
// swallowed, or its connection ends before or after it was carried out, by the number of the trial,
// and new ones are not answered.
func behind(t *testing.T, i int, server *redistest.Server, open func(url string) (locker, error)) func() (remote, error) {
	return func() (remote, error) {
		fate := []redistest.Fate{redistest.Swallow, redistest.CutBefore, redistest.CutAfter}[i%3]
		link := chaostest.NewLink(t, server)
		locks, err := open(link.URL())
		return remote{locks, func() { link.Cut(fate) }, link.Mend}, err
	}
}

// cutHolder cuts the link of one holder.
func cutHolder(t *testing.T, i int, near locker, open func() (remote, error), found *trialResults) (err error) {
	far, err := open()
	if err != nil {
		return err
	}
	defer func() {
		far.mend()
		err = errors.Join(err, far.Close())
	}()
	w := wish{Name: fmt.Sprintf("cut-%d", i), TTL: longer, Wait: time.Minute}
	asked := now()
	held, err := far.Acquire(t.Context(), w)
	if err != nil {
		return err
	}
	first := granted(0, asked, now(), held.Fence())
	reported, believed := make(chan int64, 1), int64(0)
	go func() {
		for at := now(); held.Err() == nil; at = now() {
			believed = at
			time.Sleep(time.Millisecond)
		}
		reported <- now()
	}()
	asked = now()
	line := await(t.Context(), near, w)
	time.Sleep(rand.N(longer)) // some renewals come through
	far.cut()
	heir := <-line
	if heir.err != nil {
		return fmt.Errorf("the next one: %w", heir.err)
	}
	at := <-reported
	far.mend() // so that the release below is answered
	ctx := context.WithoutCancel(t.Context())
	_ = held.Release(ctx) // it was lost
	released := now()
	if err := heir.release(ctx, near); err != nil {
		return err
	}
	found.add(at, believed, heir.got)
	found.record(first, ended(0, believed, at), granted(1, asked, heir.got, heir.Fence()), ended(1, released, now()))
	return nil
}
