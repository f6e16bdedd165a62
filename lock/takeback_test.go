package lock

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// awayFrom are locks behind a proxy that answers no request about one lock while it is away.
type awayFrom struct {
	locks, others *Locks
	lock          atomic.Value // its name; "" = Redis is not away
	first         atomic.Bool  // the next request is carried out all the same
}

func openAway(t *testing.T) *awayFrom {
	t.Helper()
	server := redistest.Start(t)
	a := &awayFrom{}
	a.returns()
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		switch name := a.lock.Load().(string); {
		case name == "" || !bytes.Contains(request, []byte(":lock:{"+name+"}")):
			return redistest.Pass, nil
		case a.first.CompareAndSwap(true, false):
			return redistest.CutAfter, nil
		}
		return redistest.CutBefore, nil
	})
	a.locks = open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL()}), Config{})
	a.others = open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	release(t, must(t, a.locks, "any", Request{})) // its script is known
	return a
}

// goes has Redis go away: it carries out one more request, or none.
func (a *awayFrom) goes(name string, one bool) {
	a.first.Store(one)
	a.lock.Store(name)
}

func (a *awayFrom) returns() { a.lock.Store("") }

// held waits until a lock has that many holders.
func (a *awayFrom) held(t *testing.T, name string, n int) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("lock %s has %d holders", name, n), func() bool { return len(info(t, a.others, name).Holders) == n })
}

// A request and its withdrawal have no answer, and the request is carried out. No caller knows of
// that lock: it is given back when Redis answers again.
func TestLockWithoutAnAnswerIsGivenBackWhenRedisAnswersAgain(t *testing.T) {
	t.Parallel()
	a := openAway(t)
	for _, request := range []Request{{}, {Mode: ModeShared}, {Permits: 2}} {
		request.TTL = time.Hour
		release(t, must(t, a.locks, "any", request)) // its script is known
		name := "late-" + string(request.Mode) + strconv.Itoa(request.Permits)
		a.goes(name, true)
		_, err := a.locks.TryAcquire(t.Context(), name, request)
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		a.held(t, name, 1)
		a.returns()
		a.held(t, name, 0)
	}
	// its caller may ask again with the same token, and get it
	a.goes("same", true)
	request := Request{TTL: time.Hour, Token: secret.New()}
	_, err := a.locks.TryAcquire(t.Context(), "same", request)
	wantIs(t, err, redisstore.ErrUnknownOutcome)
	a.returns()
	release(t, must(t, a.locks, "same", request))
}

// The withdrawal comes first, by another connection.
func TestLockIsGivenBackWhoseWithdrawalOvertookItsRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var hold atomic.Bool
	goOn := make(chan struct{})
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte(":lock:{late}")) && hold.CompareAndSwap(true, false) {
			<-goOn
		}
		return redistest.Pass, nil
	})
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: time.Second}), Config{})
	others := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	release(t, must(t, others, "late", Request{}))
	hold.Store(true)
	_, err := locks.TryAcquire(t.Context(), "late", Request{TTL: time.Hour})
	wantIs(t, err, redisstore.ErrUnknownOutcome)
	expect.Equal(t, "holders before the request arrives", len(info(t, others, "late").Holders), 0)
	close(goOn)
	expect.Eventually(t, "the lock is granted to no process", func() bool { return len(info(t, others, "late").Holders) == 1 })
	expect.Eventually(t, "it is given back", func() bool { return len(info(t, others, "late").Holders) == 0 })
}

func TestDiscardedGrantIsGivenBackWhenRedisAnswersAgain(t *testing.T) {
	t.Parallel()
	a := openAway(t)
	grant, err := a.locks.TryGrant(t.Context(), "late", Request{TTL: time.Hour})
	expect.MustEqual(t, "error of a grant", err, nil)
	a.goes("late", false)
	expect.Equal(t, "error of Discard while Redis is away", a.locks.Discard(t.Context(), grant), nil)
	a.held(t, "late", 1)
	a.returns()
	a.held(t, "late", 0)
	wantIs(t, a.locks.Discard(t.Context(), grant), ErrLost)
}

// Close waits for no answer of Redis.
func TestCloseLeavesWhatRedisDoesNotAnswerFor(t *testing.T) {
	t.Parallel()
	a := openAway(t)
	a.goes("late", true)
	for range 2 { // the second time after Close
		_, err := a.locks.TryAcquire(t.Context(), "late", Request{TTL: time.Hour})
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		expect.Equal(t, "error of Close", a.locks.Close(), nil)
		a.held(t, "late", 1)
	}
}
