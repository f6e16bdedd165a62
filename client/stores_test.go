package client_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The client speaks with the service alone. What the service answers is asked on every kind of
// store, each started once, with names that no other part uses; the other tests are on the embedded
// one.
func TestOnEveryStore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		t.Run("tokens", func(t *testing.T) {
			t.Run("issue, claim, extend, complete, replay", s.round)
			t.Run("a claim in progress is reported with its remaining lease", s.busy)
			t.Run("a claim given back can be taken again", s.givenBack)
			t.Run("only the owner may complete, extend or release", s.owner)
			t.Run("a silent attempt under hold stays in doubt until its owner comes back", s.doubt)
			t.Run("a silent attempt under takeover is superseded", s.takeover)
			t.Run("what the service never heard of is unknown", s.unknown)
			t.Run("of many claims at once one is granted", s.manyAtOnce)
			t.Run("of many calls of Do at once one runs", s.doneOnce)
		})
		t.Run("lost replies", func(t *testing.T) {
			t.Run("claim: asked for again with the same owner, it is granted", s.claimLost)
			t.Run("claim: its owner can go on asking, or give it back", s.claimNeverAnswered)
			t.Run("complete, extend and release can be asked again", s.askedAgain)
		})
		t.Run("operations in doubt", func(t *testing.T) {
			t.Run("listed and shown", s.doubtShown)
			t.Run("settled with an answer", s.settledAsHappened)
			t.Run("settled as not begun, and refused while the next attempt may run", s.settledAsNotBegun)
			t.Run("closed", s.settledAsRefused)
		})
		t.Run("counters", func(t *testing.T) {
			t.Run("added to, read, set and removed", s.counterRound)
			t.Run("a request id", s.counterRepeated)
			t.Run("set back on purpose", s.counterBack)
			t.Run("what is refused", s.counterRefused)
			t.Run("with a date", s.counterDated)
			t.Run("listed page by page", s.countersListed)
		})
		t.Run("locks", func(t *testing.T) {
			t.Run("acquired, seen, listed and released", s.lockRound)
			t.Run("held by another, then handed over", s.lockHandedOver)
			t.Run("shared and permits", s.lockTogether)
			t.Run("broken", s.lockBroken)
			t.Run("kept for a while", s.lockKept)
			t.Run("a wait whose context ends leaves nothing", s.lockNotWaitedFor)
		})
		t.Run("worker ids", func(t *testing.T) {
			t.Run("a lease is granted, renewed, seen and given back", s.workerRound)
			t.Run("a lease that has ended is lost", s.workerLost)
			t.Run("a pool is what it was created as", s.createdPool)
			t.Run("a pool that is exhausted says when to come again", s.workersExhausted)
			t.Run("pools are listed page by page", s.pools)
		})
	})
}
