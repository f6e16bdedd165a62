package scripts_test

import (
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// resolve is what operation_resolve answers to a resolver.
func (b *box) resolve(owner string, lease int64) []string {
	b.Helper()
	return b.run(scripts.OperationResolve, tokenKey[:1], owner, lease, "done")
}

// settleAs is settle by a resolver.
func (b *box) settleAs(owner, outcome, answer string) []string {
	b.Helper()
	return b.run(scripts.OperationSettle, tokenKey, outcome, answer, outcome+answer, "done", owner)
}

func TestResolverTakesTheClaimOfAnAttemptInDoubt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		fence := b.inDoubt(claim{})
		reply := b.resolve("rob", minute)
		word(t, reply, "ok", 3)
		want(t, reply[1:2], strconv.FormatInt(fence, 10))
		want(t, reply[3:], "1")
		for _, late := range [][]string{b.complete("ann", "late"), b.extend("ann", minute), b.release("ann")} {
			want(t, late, "stale")
		}
		for _, nobody := range [][]string{b.complete("", "late"), b.extend("", minute), b.extend("", 0), b.release("")} {
			want(t, nobody, "stale") // the record has no owner now
		}
		want(t, b.doubts(), "t") // until it is settled
		reply = b.claim(claim{owner: "bob", policy: "takeover"})
		word(t, reply, "resolving", 1)
		between(t, "left to the resolver", number(t, reply[1]), 1, minute)
		word(t, b.resolve("rex", minute), "busy", 1)
		word(t, b.settle("refused", ""), "running", 1)
		want(t, b.settleAs("rex", "not-begun", ""), "stale")
		want(t, b.settleAs("rob", "completed", "answer"), "ok")
		want(t, b.settleAs("rob", "completed", "answer"), "already")
		want(t, b.claim(claim{owner: "bob"}), "replay", "answer")
		want(t, b.resolve("rex", minute), "not-in-doubt", "completed")
	})
}

func TestWhatIsResolvedAsNotBegunRunsWithALargerFence(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		fence := b.inDoubt(claim{})
		word(t, b.resolve("rob", minute), "ok", 3)
		want(t, b.settleAs("rob", "not-begun", ""), "ok")
		reply := b.claim(claim{owner: "bob"})
		word(t, reply, "granted", 3)
		expect.Equal(t, "whether the fence is larger", number(t, reply[1]) > fence, true)
		want(t, b.settleAs("rob", "completed", "answer"), "stale")
		b.extend("bob", 0)
		b.tick()
		reply = b.resolve("rob", minute)
		want(t, reply[3:], "1") // how often the new attempt was asked for
	})
}

// A resolver that has died, or was asked in vain, stands in nobody's way for long. The more often
// it was asked in vain, the later it is asked again.
func TestResolverThatFindsNothingOutIsAskedAgainLater(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.inDoubt(claim{policy: "takeover"})
		word(t, b.resolve("rob", 1), "ok", 3)
		b.tick()
		reply := b.resolve("rex", minute)
		word(t, reply, "ok", 3)
		want(t, reply[3:], "2")
		want(t, b.resolve("rex", minute)[3:], "2") // the same time
		want(t, b.resolve("rob", 0), "stale")
		before := b.now()
		reply = b.resolve("rex", 0)
		word(t, reply, "ok", 3)
		between(t, "when it may be asked again", number(t, reply[2]), before+2000, b.now()+2000)
		word(t, b.resolve("rob", minute), "busy", 1)
		word(t, b.settle("refused", ""), "ok", 0) // an operator need not wait
		want(t, b.resolve("rob", minute), "not-in-doubt", "refused")
	})
}

func TestTakeoverEndsAResolverThatHasDied(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.inDoubt(claim{policy: "takeover"})
		word(t, b.resolve("rob", 1), "ok", 3)
		b.tick()
		word(t, b.claim(claim{owner: "bob", policy: "takeover"}), "granted", 3)
		want(t, b.settleAs("rob", "not-begun", ""), "stale")
		word(t, b.resolve("rex", minute), "running", 1)
		want(t, b.complete("bob", "done"), "ok")
		want(t, b.resolve("rex", minute), "not-in-doubt", "completed")
	})
}

// The word about one attempt is none about a later one, and after an answer is forgotten it is new.
func TestWhatWasDecidedIsOfOneAttempt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.inDoubt(claim{})
		want(t, b.settle("not-begun", ""), "ok")
		b.granted(claim{})
		want(t, b.complete("ann", "done"), "ok")
		want(t, b.settle("not-begun", ""), "not-in-doubt", "completed")
		want(t, b.forget(), "ok")
		b.inDoubt(claim{})
		want(t, b.settle("completed", "answer"), "ok")
		want(t, b.forget(), "ok")
		want(t, b.settle("completed", "answer"), "not-in-doubt", "issued")
		b.inDoubt(claim{})
		word(t, b.resolve("rob", minute), "ok", 3)
		word(t, b.resolve("rob", 0), "ok", 3)
		want(t, b.resolve("", 0), "stale")
	})
}

func TestOnlyAnOperationInDoubtIsResolved(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.resolve("rob", minute), "unknown")
		b.issue(hour, "")
		want(t, b.resolve("rob", minute), "not-in-doubt", "issued")
		b.granted(claim{})
		word(t, b.resolve("rob", minute), "running", 1)
		want(t, b.complete("ann", "done"), "ok")
	})
}
