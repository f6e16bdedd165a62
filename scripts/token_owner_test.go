package scripts_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

func TestCompleteRecordsOneAnswer(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.complete("ann", "first"), "gone")
		b.granted(claim{})
		before := b.look(tokenKey...)
		want(t, b.complete("bob", "stolen"), "stale")
		b.same(before)

		want(t, b.complete("ann", "first"), "ok")
		before = b.look(tokenKey...)
		want(t, b.complete("ann", "first"), "already")
		want(t, b.complete("ann", "second"), "already")
		want(t, b.complete("bob", "third"), "stale")
		b.same(before)
		want(t, b.claim(claim{owner: "cyd"}), "replay", "first")
	})
}

// The scripts look at the beginning of a record, however large its answer is.
func TestLargeAnswerIsRecordedAsASmallOne(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		large := strings.Repeat("x", 1<<20)
		b.granted(claim{})
		want(t, b.complete("ann", large), "ok")
		want(t, b.complete("ann", large), "already")
		want(t, b.complete("bob", large), "stale")
		want(t, b.extend("bob", minute), "stale")
		want(t, b.issue(hour, ""), "exists")
		word(t, b.extend("ann", 0), "ok", 1)
	})
}

func TestCompleteOfAReleasedClaimIsStale(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(hour, "")
		b.granted(claim{})
		b.release("ann")
		before := b.look(tokenKey...)
		want(t, b.complete("ann", "late"), "stale")
		want(t, b.extend("ann", minute), "stale")
		b.same(before)
	})
}

func TestLateOwnerCompletesAClaimInDoubt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{})
		b.extend("ann", 0)
		word(t, b.claim(claim{owner: "bob"}), "in-doubt", 2)
		want(t, b.complete("ann", "late but true"), "ok")
		want(t, b.claim(claim{owner: "bob"}), "replay", "late but true")
	})
}

func TestExtendMovesTheLease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.extend("ann", minute), "gone")
		b.granted(claim{lease: 200})
		before := b.now()
		reply := b.extend("ann", 10*minute)
		word(t, reply, "ok", 1)
		between(t, "the lease", number(t, reply[1]), before+10*minute, b.now()+10*minute)
		expect.Equal(t, "until when the record says", b.token()[5], reply[1])
		unchanged := b.look(tokenKey...)
		want(t, b.extend("bob", minute), "stale")
		b.same(unchanged)

		b.complete("ann", "done")
		unchanged = b.look(tokenKey...)
		want(t, b.extend("ann", minute), "stale") // nothing to keep alive
		b.same(unchanged)
	})
}

func TestExtendWithoutALeaseTakesThatOfTheClaim(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{lease: hour})
		for _, lease := range []int64{minute, 0, 5 * hour} { // which the claim does not remember
			b.extend("ann", lease)
			before := b.now()
			reply := b.run(scripts.TokenExtend, tokenKey, "ann", "", keepOpen, "")
			word(t, reply, "ok", 1)
			between(t, "the lease", number(t, reply[1]), before+hour, b.now()+hour)
		}
		b.extend("ann", 0)
		b.granted(claim{lease: minute}) // asked again, it is claimed for another lease
		before := b.now()
		reply := b.run(scripts.TokenExtend, tokenKey, "ann", "", keepOpen, "")
		between(t, "the lease", number(t, reply[1]), before+minute, b.now()+minute)

		unchanged := b.look(tokenKey...)
		want(t, b.run(scripts.TokenExtend, tokenKey, "bob", "", keepOpen, ""), "stale")
		b.same(unchanged)
	})
}

func TestExtendByNothingLeavesTheTokenInDoubt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{lease: hour})
		for range 2 { // repeating it is harmless
			word(t, b.extend("ann", 0), "ok", 1)
			word(t, b.token(), "in-doubt", 5)
			word(t, b.claim(claim{owner: "bob"}), "in-doubt", 2)
		}
	})
}

func TestReleaseGivesBackOnlyWhatIsTheOwners(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.release("ann"), "gone")
		b.issue(hour, "")
		b.granted(claim{})
		before := b.look(tokenKey...)
		want(t, b.release("bob"), "stale")
		b.same(before)

		want(t, b.release("ann"), "ok")
		before = b.look(tokenKey...)
		want(t, b.release("ann"), "ok")
		b.same(before)

		b.granted(claim{owner: "bob"})
		before = b.look(tokenKey...)
		want(t, b.release("ann"), "stale") // a plain DEL would free the successor here
		b.same(before)

		b.complete("bob", "done")
		before = b.look(tokenKey...)
		want(t, b.release("bob"), "answered")
		want(t, b.release("ann"), "answered")
		b.same(before)
	})
}

func TestReleasedTokenEndsWhenItWouldHaveEnded(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		b.issue(minute, "")
		after := b.now()
		b.granted(claim{})
		b.extend("ann", 10*minute)
		for range 2 {
			want(t, b.release("ann"), "ok")
			between(t, "the record's end", b.expiry(tokenKey[0]), before+minute-slack, after+minute+slack)
		}
	})
}

func TestOwnerTakesItsAnswerBack(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{})
		b.complete("ann", "done")
		before := b.look(tokenKey...)
		want(t, b.extend("bob", 0), "stale")
		b.same(before)
		word(t, b.extend("ann", 0), "ok", 1)
		word(t, b.claim(claim{owner: "bob"}), "in-doubt", 2)
		want(t, b.complete("ann", "after all"), "ok")
		want(t, b.claim(claim{owner: "bob"}), "replay", "after all")
	})
}

// A client's own key leaves nothing behind, unless another attempt may have begun, or its fence is
// ahead of the clock.
func TestReleaseForgetsAClientsOwnKey(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.granted(claim{})
		want(t, b.release("ann"), "forgotten")
		want(t, b.token(), "unknown")
		for _, late := range [][]string{b.release("ann"), b.complete("ann", "late"), b.extend("ann", minute)} {
			want(t, late, "gone")
		}
		if again := b.granted(claim{owner: "bob"}); again <= first {
			t.Errorf("the fence after a release: got %d, want more than %d", again, first)
		}
		b.setWord("fence", "9007199254740000")
		want(t, b.release("bob"), "ok")
		b.do("DEL", tokenKey[0])

		b.granted(claim{policy: "takeover"})
		b.extend("ann", 0)
		b.granted(claim{owner: "bob", policy: "takeover"})
		want(t, b.release("bob"), "ok")
		want(t, b.complete("ann", "late"), "stale")
	})
}

func TestIssuedTokenIsNobodysToCompleteExtendOrRelease(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(hour, "")
		before := b.look(tokenKey...)
		for _, owner := range []string{"ann", ""} {
			want(t, b.complete(owner, "x"), "stale")
			want(t, b.extend(owner, minute), "stale")
			want(t, b.release(owner), "stale")
		}
		b.same(before)
	})
}

// A claim stays open for longer than its answer is kept, and the retention begins with the answer.
func TestRetentionBeginsWithTheAnswer(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ends := func(after string, span int64) {
			t.Helper()
			between(t, "the record's end after "+after, b.expiry(tokenKey[0]), b.now()+span-patience.Milliseconds(), b.now()+span+slack)
		}
		for _, whose := range []string{"", "ann's"} {
			b.granted(claim{retention: hour, keepOpen: 90 * hour, whose: whose})
			ends("a claim", 90*hour)
			b.granted(claim{retention: 2 * hour, keepOpen: 80 * hour, whose: whose})
			ends("a repeat for less", 90*hour)
			b.run(scripts.TokenExtend, tokenKey, "ann", minute, 100*hour, "")
			ends("a heartbeat", 100*hour)
			b.extend("ann", 0)
			ends("an end without an answer", keepOpen)
			b.complete("ann", "done")
			ends("the answer, by the last claim", 2*hour)
			for _, ask := range []func() []string{
				func() []string { return b.claim(claim{owner: "bob", retention: 90 * hour}) },
				func() []string { return b.complete("ann", "done") },
				func() []string { return b.extend("ann", minute) },
				b.token,
				func() []string { return b.release("ann") },
				func() []string { return b.issue(90*hour, "") },
			} {
				ends(ask()[0], 2*hour) // what changes nothing keeps nothing longer
			}
			b.do("DEL", tokenKey[0])
		}

		b.issue(5*hour, "")
		b.granted(claim{retention: hour})
		b.complete("ann", "done")
		ends("the answer under a token that could have waited for longer", hour)
	})
}

func TestAnswerOfAnOperatorStaysForTheRetentionOfTheClaim(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.inDoubt(claim{retention: 3 * hour})
		want(t, b.settle("completed", "answer"), "ok")
		between(t, "the record's end", b.expiry(tokenKey[0]), b.now()+3*hour-patience.Milliseconds(), b.now()+3*hour+slack)
		b.do("DEL", tokenKey[0])
		b.inDoubt(claim{retention: 3 * hour})
		want(t, b.settle("refused", ""), "ok") // no request may begin for as long as in doubt
		between(t, "the record's end", b.expiry(tokenKey[0]), b.now()+keepOpen-patience.Milliseconds(), b.now()+keepOpen+slack)
	})
}

func TestCompletedRecordEndsAfterItsRetention(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{lease: 100, retention: 150})
		b.complete("ann", "done")
		expect.Eventually(t, "the record kept for 150 ms is gone", func() bool { return b.token()[0] == "unknown" })
		want(t, b.complete("ann", "done"), "gone")
		want(t, b.release("ann"), "gone")
		want(t, b.extend("ann", minute), "gone")
	})
}
