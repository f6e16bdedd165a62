package scripts_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// tokenKey is the record of the operation t, and the list of the operations under way.
var tokenKey = []string{"{t}", "{t}:under-way"}

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour
)

// claim is what token_claim is asked with. The zero value of each field means the default beside
// it.
type claim struct {
	owner, fingerprint string // "ann", "print"
	lease              int64  // a minute
	policy             string // hold
	retention          int64  // an hour
	keepOpen           int64  // 30 days
	scope              string
	issued             bool // only a token that was issued will do
	route, request     string
	whose, asks        string
	await              string
}

// claiming are the arguments of a claim by an owner.
func claiming(owner, await string) []any {
	return []any{owner, fmt.Sprint(hour, "\t", minute, "\tprint\thold\t\t\t\t"), minute, "", "any", await, keepOpen}
}

func (b *box) claim(c claim) []string {
	b.Helper()
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	if c.lease == 0 {
		c.lease = minute
	}
	if c.retention == 0 {
		c.retention = hour
	}
	if c.keepOpen == 0 {
		c.keepOpen = keepOpen
	}
	birth := "any"
	if c.issued {
		birth = "issued"
	}
	terms := fmt.Sprint(c.retention, "\t", c.lease, "\t", or(c.fingerprint, "print"), "\t", or(c.policy, "hold"), "\t",
		c.route, "\t", c.request, "\t", c.whose, "\t", c.asks)
	return b.run(scripts.TokenClaim, tokenKey, or(c.owner, "ann"), terms, c.lease, c.scope, birth, c.await, c.keepOpen)
}

// keepOpen is how long a record without an answer stays.
const keepOpen = 30 * 24 * hour

func (b *box) issue(ttl int64, scope string) []string {
	b.Helper()
	return b.run(scripts.TokenIssue, tokenKey, ttl, scope)
}

func (b *box) complete(owner, answer string) []string {
	b.Helper()
	return b.run(scripts.TokenComplete, tokenKey, owner, answer, "")
}

func (b *box) extend(owner string, lease int64) []string {
	b.Helper()
	return b.run(scripts.TokenExtend, tokenKey, owner, lease, keepOpen, "")
}

func (b *box) release(owner string) []string {
	b.Helper()
	return b.run(scripts.TokenRelease, tokenKey, owner)
}

// token is the token's state, end, fence, attempts, scope and lease.
func (b *box) token() []string {
	b.Helper()
	reply := b.run(scripts.OperationGet, tokenKey[:1])
	if reply[0] != "ok" {
		return reply
	}
	return []string{reply[1], reply[9], reply[4], reply[5], reply[11], reply[8]}
}

// granted claims and returns the fence.
func (b *box) granted(c claim) int64 {
	b.Helper()
	reply := b.claim(c)
	word(b, reply, "granted", 3)
	return number(b, reply[1])
}

func TestIssuedTokenWaitsForItsClaimUntilItEnds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.token(), "unknown")
		before := b.now()
		reply := b.issue(hour, "pay")
		word(t, reply, "ok", 1)
		between(t, "expires at", number(t, reply[1]), before+hour-slack, b.now()+hour)
		between(t, "the record's end", b.expiry(tokenKey[0]), before+hour-slack, b.now()+hour+slack)
		status := b.token()
		want(t, append(status[:1:1], status[2:]...), "issued", "0", "0", "pay", "0")
		between(t, "the shown end", number(t, status[1]), before+hour-slack, b.now()+hour)
	})
}

func TestIssuingAgainAnswersTheSameUntilTheTokenIsUsed(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.issue(hour, "pay")
		before := b.look(tokenKey...)
		again := b.issue(2*hour, "other")
		word(t, again, "ok", 1)
		between(t, "expires at", number(t, again[1]), number(t, first[1])-slack, number(t, first[1])+slack)
		b.same(before)

		b.granted(claim{scope: "pay", issued: true})
		before = b.look(tokenKey...)
		want(t, b.issue(hour, "pay"), "exists")
		b.same(before)

		want(t, b.release("ann"), "ok")
		before = b.look(tokenKey...)
		word(t, b.issue(hour, "pay"), "ok", 1) // given back: it may be used again
		b.same(before)

		b.granted(claim{scope: "pay", issued: true})
		want(t, b.complete("ann", "done"), "ok")
		before = b.look(tokenKey...)
		want(t, b.issue(hour, "pay"), "exists")
		b.same(before)
	})
}

func TestIssuedTokenThatEndedIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.issue(120, "")
		expect.Eventually(t, "the token issued for 120 ms ends", func() bool { return b.token()[0] == "unknown" })
		want(t, b.claim(claim{issued: true}), "unknown")
		expect.Equal(t, "what the refused claim made", b.look(tokenKey...)[tokenKey[0]].kind, "none")
	})
}

func TestTokenThatWasNeverIssuedIsUnknownWhereOnlyIssuedOnesCount(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.claim(claim{issued: true}), "unknown")
		want(t, b.token(), "unknown")
		b.granted(claim{})
		want(t, b.claim(claim{issued: true, fingerprint: "other"}), "mismatch") // it exists now
	})
}

func TestTokenShowsEveryState(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		state := func(want string, fence int64, attempts string) {
			t.Helper()
			before := b.look(tokenKey...)
			reply := b.token()
			word(t, reply, want, 5)
			if number(t, reply[2]) != fence || reply[3] != attempts || reply[4] != "pay" {
				t.Errorf("operation_get: got %q, want fence %d and %s attempts in scope pay", reply, fence, attempts)
			}
			b.same(before)
		}
		b.issue(hour, "pay")
		state("issued", 0, "0")
		fence := b.granted(claim{scope: "pay"})
		state("claimed", fence, "1")
		between(t, "the lease", number(t, b.token()[5]), b.now(), b.now()+minute)
		b.extend("ann", 0)
		state("in-doubt", fence, "1")
		b.release("ann")
		state("issued", fence, "1")
		fence = b.granted(claim{scope: "pay", owner: "bob"})
		state("claimed", fence, "2")
		b.complete("bob", "done")
		state("completed", fence, "2")
	})
}

// Until its first claim an issued token has no route, and then that of its scope where the claim
// names none.
func TestRouteOfAnIssuedTokenIsItsScope(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		route := func(want string) {
			t.Helper()
			reply := b.run(scripts.OperationGet, tokenKey[:1])
			expect.Equal(t, "route after "+lastAsked(t), reply[2], want)
		}
		b.issue(hour, "pay")
		route("")
		b.granted(claim{scope: "pay"})
		route("pay")
		b.release("ann")
		b.granted(claim{scope: "pay", route: "POST /pay"})
		route("POST /pay")
	})
}
