package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// settle is what operation_settle is asked to decide, with an answer and its digest.
func (b *box) settle(outcome, answer string) []string {
	b.Helper()
	return b.run(scripts.OperationSettle, tokenKey, outcome, answer, outcome+answer, "done", "")
}

// doubts is the first page of operations in doubt.
func (b *box) doubts() []string {
	b.Helper()
	reply := b.run(scripts.OperationList, tokenKey[1:], 0, "", 100)
	word(b, reply, "ok", len(reply)-1)
	return slices.Collect(func(yield func(string) bool) {
		for pair := range slices.Chunk(reply[1:], 2) {
			if !yield(pair[0]) {
				return
			}
		}
	})
}

// inDoubt claims the token as ann, who falls silent.
func (b *box) inDoubt(c claim) (fence int64) {
	b.Helper()
	fence = b.granted(c)
	word(b, b.extend("ann", 0), "ok", 1)
	b.tick()
	return fence
}

func TestOperationInDoubtIsListedUntilItEnds(t *testing.T) {
	for name, end := range map[string]func(*box){
		"completed by its late owner":   func(b *box) { want(b, b.complete("ann", "late"), "ok") },
		"given back":                    func(b *box) { want(b, b.release("ann"), "forgotten") },
		"settled as completed":          func(b *box) { want(b, b.settle("completed", "answer"), "ok") },
		"settled as not begun":          func(b *box) { want(b, b.settle("not-begun", ""), "ok") },
		"settled as refused":            func(b *box) { want(b, b.settle("refused", ""), "ok") },
		"its owner is alive after all":  func(b *box) { word(b, b.extend("ann", minute), "ok", 1) },
		"claimed again by the same one": func(b *box) { b.granted(claim{}) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.granted(claim{})
				if listed := b.doubts(); len(listed) > 0 {
					t.Fatalf("operations in doubt while the attempt runs: got %q, want none", listed)
				}
				word(t, b.extend("ann", 0), "ok", 1)
				b.tick()
				want(t, b.doubts(), "t")
				end(b)
				if listed := b.doubts(); len(listed) > 0 {
					t.Fatalf("operations in doubt after the end: got %q, want none", listed)
				}
			})
		})
	}
}

func TestOperationShowsWhatAnOperatorNeeds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		get := func() []string { return b.run(scripts.OperationGet, tokenKey[:1]) }
		want(t, get(), "unknown")
		before := b.now()
		fence := b.granted(claim{route: "POST /payments", request: "r-1"})
		shown := get()
		want(t, shown[:7], "ok", "claimed", "POST /payments", "r-1", strconv.FormatInt(fence, 10), "1", "hold")
		between(t, "began", number(t, shown[7]), before, b.now())
		between(t, "lease until", number(t, shown[8]), before+minute, b.now()+minute)
		between(t, "expires at", number(t, shown[9]), before+keepOpen-slack, b.now()+keepOpen+slack)
		b.tick()
		b.granted(claim{route: "POST /payments", request: "r-1"})
		want(t, get()[7:8], shown[7]) // the same attempt, asked for again
		word(t, b.extend("ann", 0), "ok", 1)
		b.tick()
		want(t, get()[1:2], "in-doubt")
		want(t, b.settle("refused", ""), "ok")
		want(t, get()[10:11], "refused")
	})
}

// People settle the operations of a route together: those of an issued token are its scope's.
func TestOperationOfATokenWithoutARouteIsOfItsScope(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(hour, "pay")
		b.granted(claim{issued: true, scope: "*"})
		want(t, b.run(scripts.OperationGet, tokenKey[:1])[2:3], "pay")
		b.claim(claim{issued: true, scope: "pay", route: "POST /payments"})
		want(t, b.run(scripts.OperationGet, tokenKey[:1])[2:3], "POST /payments")
	})
}

func TestSettlingEndsTheDoubtAsItWasDecided(t *testing.T) {
	for outcome, later := range map[string]func(b *box, fence int64){
		"completed": func(b *box, _ int64) {
			want(b, b.claim(claim{owner: "bob"}), "replay", "answer")
			want(b, b.claim(claim{owner: "bob", fingerprint: "other"}), "mismatch")
		},
		"not-begun": func(b *box, fence int64) {
			reply := b.claim(claim{owner: "bob"})
			word(b, reply, "granted", 3)
			if number(b, reply[1]) <= fence || reply[2] != "2" {
				b.Errorf("the claim after fence %d: got %q, want a larger fence and attempt 2", fence, reply)
			}
		},
		"refused": func(b *box, _ int64) {
			reply := b.claim(claim{owner: "bob", policy: "takeover"})
			word(b, reply, "in-doubt", 2)
			want(b, reply[2:], "refused")
		},
	} {
		t.Run(outcome, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				fence := b.inDoubt(claim{policy: "takeover"})
				want(t, b.settle(outcome, "answer"), "ok")
				for _, late := range [][]string{b.complete("ann", "late"), b.extend("ann", minute)} {
					want(t, late, "stale") // the attempt has lost its claim
				}
				gone := "stale"
				if outcome == "completed" {
					gone = "answered"
				}
				want(t, b.release("ann"), gone)
				again := b.settle(outcome, "answer")
				if again[0] != "already" && outcome != "refused" {
					t.Errorf("settling again: got %q, want already", again)
				}
				later(b, fence)
			})
		})
	}
}

func TestSettlingIsRefusedWhereThereIsNoDoubt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.settle("not-begun", ""), "unknown")
		b.issue(hour, "")
		want(t, b.settle("completed", "answer"), "not-in-doubt", "issued")
		b.granted(claim{})
		before := b.look(tokenKey...)
		reply := b.settle("completed", "answer")
		word(t, reply, "running", 1)
		between(t, "left of the lease", number(t, reply[1]), 1, minute)
		b.same(before)
		want(t, b.complete("ann", "own"), "ok")
		want(t, b.settle("completed", "answer"), "not-in-doubt", "completed")
		want(t, b.claim(claim{owner: "bob"}), "replay", "own")
	})
}

func TestWhatWasRefusedMayBeSettledOtherwise(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.inDoubt(claim{})
		want(t, b.settle("refused", ""), "ok")
		want(t, b.settle("refused", ""), "ok")
		want(t, b.settle("completed", "answer"), "ok")
		want(t, b.settle("completed", "another"), "not-in-doubt", "completed")
		want(t, b.claim(claim{owner: "bob"}), "replay", "answer")
	})
}

func TestPagesOfOperationsInDoubtMissNone(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		var all []string
		for i := range 25 { // in groups of one end
			name := fmt.Sprintf("op-%02d", i)
			b.do("ZADD", tokenKey[1], 1000+i/10, name)
			all = append(all, name)
		}
		b.do("ZADD", tokenKey[1], b.now()+hour, "running")
		var got []string
		ended, last := "0", ""
		for {
			reply := b.run(scripts.OperationList, tokenKey[1:], ended, last, 4)
			if len(reply) == 1 {
				break
			}
			for pair := range slices.Chunk(reply[1:], 2) {
				last, ended = pair[0], pair[1]
				got = append(got, last)
			}
		}
		want(t, got, all...)
	})
}

func (b *box) forget() []string {
	b.Helper()
	return b.run(scripts.OperationForget, tokenKey[:1])
}

// What is forgotten runs again, with a larger fence, and only what has an answer is.
func TestOnlyAnAnswerIsForgotten(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.forget(), "unknown")
		fence := b.granted(claim{})
		word(t, b.forget(), "running", 1)
		want(t, b.complete("ann", "answer"), "ok")
		want(t, b.forget(), "ok")
		want(t, b.forget(), "already")
		want(t, b.complete("ann", "answer"), "stale")
		if next := b.granted(claim{owner: "bob", fingerprint: "another"}); next <= fence {
			t.Errorf("fence of the claim after it: got %d, want more than %d", next, fence)
		}
		word(t, b.extend("bob", 0), "ok", 1)
		b.tick()
		if reply := b.forget(); len(reply) != 3 || reply[0] != "in-doubt" || reply[2] != "open" {
			t.Errorf("forgetting what is in doubt: got %q, want in-doubt and open", reply)
		}
		want(t, b.settle("refused", ""), "ok")
		if reply := b.forget(); len(reply) != 3 || reply[2] != "refused" {
			t.Errorf("forgetting what an operator has refused: got %q, want in-doubt and refused", reply)
		}
	})
}

func TestOperationTellsWhoseItIsAndWhetherAResolverMayBeAsked(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{whose: "ann's", asks: "1"})
		want(t, b.run(scripts.OperationGet, tokenKey[:1])[12:], "ann's", "1")
	})
}

// counted is how many operations are in doubt.
func (b *box) counted() string {
	b.Helper()
	reply := b.run(scripts.OperationCount, tokenKey[1:])
	word(b, reply, "ok", 1)
	return reply[1]
}

// Running ones are in no doubt, and those whose records have ended are of no use any more, although
// both are listed.
func TestCountIsOfWhatIsInDoubtAndStillKept(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		expect.Equal(t, "in doubt on an empty Redis", b.counted(), "0")
		b.granted(claim{})
		expect.Equal(t, "in doubt while an attempt runs", b.counted(), "0")
		for i := range 3 {
			b.began(fmt.Sprint("kept", i), hour)
		}
		for i := range 2 {
			b.began(fmt.Sprint("short", i), 100)
		}
		for b.expiry("{short1}") != -2 {
			b.tick()
		}
		b.tick()
		expect.Equal(t, "members of the list", b.do("ZCARD", tokenKey[1]), any(int64(12)))
		expect.Equal(t, "in doubt, with two whose records have ended", b.counted(), "3")
		word(b, b.extend("ann", 0), "ok", 1)
		b.tick()
		expect.Equal(t, "in doubt after the attempt gave up", b.counted(), "4")
		want(t, b.settle("refused", ""), "ok")
		expect.Equal(t, "in doubt after a settlement", b.counted(), "3")
	})
}
