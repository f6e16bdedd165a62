package scripts_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// keeping is one run of a script that renews or takes away.
type keeping struct {
	name   string
	script *scripts.Script
	keys   []string
	before func(b *box) []any
	word   string // of the reply
}

var withoutMarker = terms(hour, minute, "0", 0)

// settled is for a token in doubt, which ann had claimed and which was settled so.
func settled(list ...any) func(*box) []any {
	return func(b *box) []any {
		abandoned()(b)
		b.run(scripts.OperationSettle, tokenKey, list...)
		return list
	}
}

// together is for a lock that a and b hold together.
func together(mode string, list ...any) func(*box) []any {
	return func(b *box) []any {
		b.hold(ask{token: "a", mode: mode, capacity: 2})
		b.hold(ask{token: "b", mode: mode, capacity: 2})
		return list
	}
}

// afterFailover is for a worker id that was granted before the pool's server became another one.
func afterFailover(b *box) proof {
	p := b.lease(lease{nonce: "n1"}).proof()
	b.setHead("incarnation", "before")
	return p
}

func released(b *box) []any {
	g := b.lease(lease{nonce: "n1"})
	b.giveBack(g)
	return []any{g.id, g.nonce, g.from, "", 0}
}

// brokenOf is for a lock that a holds in a mode, and that is broken.
func brokenOf(mode string) func(*box) []any {
	return func(b *box) []any {
		b.hold(ask{token: "a", mode: mode})
		return []any{strings.Fields(b.do("GET", lockKeys[1]).(string))[0], withoutMarker}
	}
}

var keepings = []keeping{
	{"heartbeat", scripts.TokenExtend, tokenKey, byAnn("ann", minute, keepOpen, ""), "ok"},
	{"end without an answer", scripts.TokenExtend, tokenKey, byAnn("ann", 0, keepOpen, ""), "ok"},
	{"answer", scripts.TokenComplete, tokenKey, byAnn("ann", "done", ""), "ok"},
	{"answer, again", scripts.TokenComplete, tokenKey, func(b *box) []any {
		b.granted(claim{})
		b.complete("ann", "done")
		return []any{"ann", "done", ""}
	}, "already"},
	{"repeat that waits", scripts.TokenClaim, tokenKey, byAnn(claiming("bob", "await")...), "busy"},
	{"repeat that waits beside another", scripts.TokenClaim, tokenKey, func(b *box) []any {
		b.granted(claim{})
		b.run(scripts.TokenClaim, tokenKey, claiming("cy", "await")...)
		return claiming("bob", "await")
	}, "busy"},
	{"claim given back", scripts.TokenRelease, tokenKey, func(b *box) []any {
		b.issue(hour, "")
		return byAnn("ann", "")(b)
	}, "ok"},
	{"claim given back, again", scripts.TokenRelease, tokenKey, func(b *box) []any {
		b.issue(hour, "")
		b.granted(claim{})
		b.release("ann")
		return []any{"ann", ""}
	}, "ok"},
	{"refused by an operator", scripts.OperationSettle, tokenKey, abandoned("refused", "", "digest", "", ""), "ok"},
	{"not begun", scripts.OperationSettle, tokenKey, abandoned("not-begun", "", "digest", "", ""), "ok"},
	{"not begun, again", scripts.OperationSettle, tokenKey, settled("not-begun", "", "digest", "", ""), "already"},
	{"lock renewed", scripts.LockRenew, lockKeys[:5], held("", tokenOf("a"), hour, ""), "ok"},
	{"shared lock renewed", scripts.LockRenew, lockKeys[:5], together("s", tokenOf("a"), hour, ""), "ok"},
	{"permits renewed", scripts.LockRenew, lockKeys[:5], together("p", tokenOf("a"), hour, ""), "ok"},
	{"lock kept on the list", scripts.LockNote, listKey, func(b *box) []any {
		b.run(scripts.LockNote, listKey, "name", hour)
		return []any{"name", 2 * hour}
	}, "ok"},
	{"lock off the list", scripts.LockNote, listKey, args("name", 0), "ok"},
	{"lock released", scripts.LockLeave, lockKeys[:5], held("", tokenOf("a"), "", withoutMarker), "free"},
	{"lock released to another process", scripts.LockLeave, lockKeys[:5], inTurn("", "", tokenOf("a"), "", withoutMarker), "free"},
	{"lock released to the same process", scripts.LockLeave, lockKeys[:5], inTurn("", "", tokenOf("a"), "in", withoutMarker), "free"},
	{"lock released to readers", scripts.LockLeave, lockKeys[:5], inTurn("", "s", tokenOf("a"), "in", withoutMarker), "free"},
	{"lock released that may be in doubt", scripts.LockLeave, lockKeys, inTurn("", "", tokenOf("a"), "in", lockTerms), "free"},
	{"shared lock released", scripts.LockLeave, lockKeys[:5], together("s", tokenOf("a"), "", withoutMarker), "left"},
	{"shared lock released by the last", scripts.LockLeave, lockKeys[:5], held("s", tokenOf("a"), "", withoutMarker), "free"},
	{"shared lock released to a writer", scripts.LockLeave, lockKeys[:5], inTurn("s", "", tokenOf("a"), "in", withoutMarker), "free"},
	{"permits released", scripts.LockLeave, lockKeys[:5], together("p", tokenOf("a"), "", withoutMarker), "left"},
	{"place in a queue given up", scripts.LockLeave, lockKeys[:5], inTurn("", "", tokenOf("b"), "in", withoutMarker), "place"},
	{"lock broken", scripts.LockBreak, lockKeys, brokenOf(""), "broken"},
	{"shared lock broken", scripts.LockBreak, lockKeys, brokenOf("s"), "broken"},
	{"lock broken that may be in doubt", scripts.LockBreak, lockKeys, breaking(""), "broken"},
	{"worker id renewed", scripts.WorkerRenew, poolKeys, func(b *box) []any { return b.lease(lease{nonce: "n1"}).proof().args() }, "ok"},
	{"worker id renewed after a failover", scripts.WorkerRenew, poolKeys, func(b *box) []any { return afterFailover(b).args() }, "ok"},
	{"worker id given back", scripts.WorkerRelease, poolKeys[:2], func(b *box) []any {
		g := b.lease(lease{nonce: "n1"})
		return []any{g.id, g.nonce, g.from, "", 0}
	}, "ok"},
	{"worker id given back, again", scripts.WorkerRelease, poolKeys[:2], released, "ok"},
	{"name removed", scripts.NameRemove, nameKey, args("orders"), "ok"},
	{"API key removed", scripts.KeyRemove, apiKeys, func(b *box) []any {
		b.run(scripts.KeyAdd, apiKeys, "k", "{}")
		return []any{"k"}
	}, "removed"},
}

// A Redis that is full and evicts nothing refuses what adds. What is held can be renewed and given
// back all the same.
func TestWhatIsHeldIsRenewedAndGivenBackWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	all := serve(t, redistest.Start(t, "--maxmemory-policy", "noeviction"))
	for _, keeping := range keepings {
		t.Run(keeping.name, func(t *testing.T) {
			b := all.on(t)
			b.do("CONFIG", "SET", "maxmemory", 0)
			b.do("FLUSHALL")
			args := keeping.before(b)
			b.load(keeping.script)
			b.do("CONFIG", "SET", "maxmemory", 1)
			if err := b.client.Set(t.Context(), "more", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
				t.Fatalf("SET: got error %v, want that memory is full", err)
			}
			reply, err := b.try(keeping.script, keeping.keys, args...)
			expect.NoError(t, lastAsked(t), err)
			if reply[0] != keeping.word {
				t.Errorf("%s: got %q, want %q", lastAsked(t), reply, keeping.word)
			}
		})
	}
}
