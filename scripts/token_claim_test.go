package scripts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/recordtest"
	"github.com/coatcheck/coatcheck/scripts"
)

func TestFirstClaimIsGrantedAndWrittenDown(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		reply := b.claim(claim{lease: 30_000, policy: "takeover"})
		after := b.now()
		word(t, reply, "granted", 3)
		between(t, "the fence", number(t, reply[1]), before*1000, after*1000+999)
		expect.Equal(t, "the attempt", reply[2], "1")
		between(t, "the lease", number(t, reply[3]), before+30_000, after+30_000)
		words := recordtest.Words(b.do("GET", tokenKey[0]).(string))
		for name, want := range map[string]string{
			"state": "claimed", "owner": "ann", "fingerprint": "print", "policy": "takeover", "lease": "30000", "until": reply[3], "fence": reply[1], "attempts": "1",
		} {
			expect.Equal(t, "the word "+name, words[name], want)
		}
		between(t, "the record's end", b.expiry(tokenKey[0]), before+keepOpen-slack, after+keepOpen+slack)
	})
}

func TestSameOwnerGetsTheSameGrantAgain(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.claim(claim{})
		for range 3 {
			b.tick()
			again := b.claim(claim{})
			word(t, again, "granted", 3)
			if again[1] != first[1] || again[2] != first[2] {
				t.Errorf("asked again: got %q, want the fence and attempt of %q", again, first)
			}
			if number(t, again[3]) < number(t, first[3]) {
				t.Errorf("asked again: the lease ends at %s, before %s", again[3], first[3])
			}
		}
	})
}

func TestOnlyOneOwnerHoldsAClaim(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		granted := b.claim(claim{})
		for i := range 20 {
			before := b.look(tokenKey...)
			from := b.now()
			reply := b.claim(claim{owner: "bob" + strconv.Itoa(i), policy: "takeover"})
			word(t, reply, "busy", 1)
			between(t, "the lease left", number(t, reply[1]), number(t, granted[3])-b.now(), number(t, granted[3])-from)
			b.same(before)
		}
	})
}

func TestAnotherRequestOnAUsedTokenIsAMismatch(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		refused := func(when string) {
			t.Helper()
			before := b.look(tokenKey...)
			for _, owner := range []string{"ann", "bob"} { // not even to its owner
				if reply := b.claim(claim{owner: owner, fingerprint: "other", policy: "takeover"}); reply[0] != "mismatch" {
					t.Errorf("%s: %s got %q, want mismatch", when, owner, reply)
				}
			}
			b.same(before)
		}
		b.granted(claim{policy: "takeover"})
		refused("claimed")
		b.extend("ann", 0)
		refused("in doubt")
		b.complete("ann", "done")
		refused("completed")
	})
}

func TestReleasedTokenTakesAnotherRequest(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(hour, "")
		fence := b.granted(claim{})
		b.release("ann")
		reply := b.claim(claim{owner: "bob", fingerprint: "other"})
		word(t, reply, "granted", 3)
		if number(t, reply[1]) <= fence || reply[2] != "2" {
			t.Errorf("token_claim: got %q after fence %d, want a larger fence and attempt 2", reply, fence)
		}
	})
}

func TestReleaserThatClaimsAgainIsANewAttempt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(hour, "")
		fence := b.granted(claim{})
		b.release("ann")
		reply := b.claim(claim{})
		word(t, reply, "granted", 3)
		if number(t, reply[1]) <= fence || reply[2] != "2" {
			t.Errorf("token_claim: got %q after fence %d, want a larger fence and attempt 2", reply, fence)
		}
	})
}

func TestCompletedTokenIsReplayedToAll(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for name, answer := range map[string]string{
			"text": "HTTP 201 paid", "empty": "", "binary": "\x00\r\n$-1\r\n\xff\xfe\x80", "large": string(make([]byte, 1<<20)), "as large as a reply may be": string(make([]byte, 16384)),
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", tokenKey[0])
				b.granted(claim{})
				want(t, b.complete("ann", answer), "ok")
				before := b.look(tokenKey...)
				replay := []string{"replay", answer}
				if name == "large" { // it would hold up others on the same round trip
					replay = []string{"replay", "", "1048576"}
				}
				for _, owner := range []string{"ann", "bob"} {
					for _, policy := range []string{"hold", "takeover"} {
						want(t, b.claim(claim{owner: owner, policy: policy}), replay...)
					}
				}
				want(t, b.run(scripts.TokenAnswer, tokenKey[:1]), "ok", answer)
				b.same(before)
			})
		}
	})
}

func TestScopeOfARouteMustFitThatOfTheToken(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range []struct {
			token, route, outcome string
		}{
			{"", "", "granted"},
			{"", "pay", "granted"},
			{"", "*", "granted"},
			{"pay", "pay", "granted"},
			{"pay", "*", "granted"},
			{"pay", "", "mismatch"},
			{"pay", "refund", "mismatch"},
			{"pay", "PAY", "mismatch"},
			{"*", "pay", "mismatch"},
			{"*", "*", "granted"},
		} {
			t.Run(row.token+" on "+row.route, func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", tokenKey[0])
				b.issue(hour, row.token)
				before := b.look(tokenKey...)
				reply := b.claim(claim{scope: row.route, issued: true})
				expect.MustEqual(t, lastAsked(t), reply[0], row.outcome)
				if row.outcome == "mismatch" {
					b.same(before)
					return
				}
				expect.Equal(t, "the scope that the claim made", b.token()[4], row.token)
			})
		}
	})
}

// The outcome for a claim that fell silent, by the policy it was made under and by that of the next
// request. Only if both say so may it run again.
var silent = []struct{ made, asked, outcome string }{
	{"hold", "hold", "in-doubt"},
	{"hold", "takeover", "in-doubt"},
	{"takeover", "hold", "in-doubt"},
	{"takeover", "takeover", "granted"},
}

func TestSilentClaimIsTakenOverOnlyIfBothPoliciesSaySo(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range silent {
			t.Run(row.made+" then "+row.asked, func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", tokenKey[0])
				fence := b.granted(claim{policy: row.made})
				word(t, b.claim(claim{owner: "bob", policy: row.asked}), "busy", 1)
				word(t, b.extend("ann", 0), "ok", 1)
				b.tick()
				before := b.look(tokenKey...)
				reply := b.claim(claim{owner: "bob", policy: row.asked})
				expect.MustEqual(t, lastAsked(t), reply[0], row.outcome)
				if row.outcome == "in-doubt" {
					between(t, "in doubt since", number(t, reply[1]), b.now()-patience.Milliseconds(), b.now())
					want(t, reply[2:], "open")
					b.same(before)
					return
				}
				if number(t, reply[1]) <= fence || reply[2] != "2" {
					t.Errorf("token_claim: got %q after fence %d, want a larger fence and attempt 2", reply, fence)
				}
				for _, late := range [][]string{b.complete("ann", "late"), b.extend("ann", minute), b.release("ann")} {
					want(t, late, "stale")
				}
				// nor does the first owner get it back
				word(t, b.claim(claim{policy: "takeover"}), "busy", 1)
			})
		}
	})
}

func TestLeaseLapsesByTheServersClock(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range silent {
			t.Run(row.made+" then "+row.asked, func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", tokenKey[0])
				end := number(t, b.claim(claim{policy: row.made, lease: 100})[3])
				var last []string
				expect.Eventually(t, "the lease of 100 ms lapses", func() bool {
					from := b.now()
					last = b.claim(claim{owner: "bob", policy: row.asked})
					if last[0] == "busy" && from >= end {
						t.Fatalf("busy at %d, the lease ended at %d", from, end)
					}
					if last[0] != "busy" && b.now() < end {
						t.Fatalf("claimed by another: got %q before the lease ended at %d", last, end)
					}
					return last[0] != "busy"
				})
				expect.Equal(t, lastAsked(t), last[0], row.outcome)
			})
		}
	})
}

func TestSilentOwnerMayGoOnAsLongAsNobodyTookOver(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range silent {
			b.do("DEL", tokenKey[0])
			fence := b.granted(claim{policy: row.made})
			b.extend("ann", 0)
			word(t, b.extend("ann", minute), "ok", 1)
			word(t, b.claim(claim{owner: "bob", policy: row.asked}), "busy", 1)
			b.extend("ann", 0)
			expect.Equal(t, "the fence of the owner that asks again", b.granted(claim{policy: row.made}), fence)
		}
	})
}

// An answer that was recorded, taken back and settled otherwise is no longer a large one.
func TestSettledAnswerAfterALargeOneIsReplayed(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.TokenAnswer, tokenKey[:1]), "gone")
		b.granted(claim{})
		want(t, b.run(scripts.TokenAnswer, tokenKey[:1]), "gone")
		want(t, b.complete("ann", strings.Repeat("x", 16385)), "ok")
		want(t, b.claim(claim{owner: "bob"}), "replay", "", "16385")
		word(t, b.extend("ann", 0), "ok", 1)
		b.tick()
		want(t, b.settle("completed", "small"), "ok")
		want(t, b.claim(claim{owner: "bob"}), "replay", "small")
	})
}
