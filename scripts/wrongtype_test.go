package scripts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// misuse is one run of a script with a list where one of its keys belongs.
type misuse struct {
	name   string
	script *scripts.Script
	keys   []string
	list   int // which of the keys
	before func(b *box) []any
	answer string // instead of an error with WRONGTYPE
}

func args(list ...any) func(*box) []any { return func(*box) []any { return list } }

var (
	next    = lease{nonce: "next"}
	unsure  = lease{nonce: "next", newPools: "wait"}
	claimed = grant{nonce: "n1", id: "0", from: 1, till: 2, fence: 3, ttl: hour}
)

// onceBegun is for a request in an era that has begun.
func onceBegun(b *box) []any {
	b.do("SET", counterKeys[0], 5)
	if b.do("EXISTS", openKeys[2]) == int64(0) {
		b.begin()
	}
	return []any{1, hour, "", "", "", 0, "begin"}
}

// lost makes and loses a pool with one open lease, and gives what proves it.
func lost(b *box) proof {
	p := b.lease(lease{nonce: "n1"}).proof()
	b.do("FLUSHALL")
	return p
}

func trusted(b *box) proof {
	p := lost(b)
	p.newPools = "trust"
	return p
}

// inTurn is for a lock that a holds in one mode and b waits for in another.
func inTurn(holds, waits string, list ...any) func(*box) []any {
	return func(b *box) []any {
		b.hold(ask{token: "a", mode: holds})
		b.enter(ask{token: "b", mode: waits, inbox: "in"})
		return list
	}
}

// obtained is for a lock that redislock has just obtained for a.
func obtained(list ...any) func(*box) []any {
	return func(b *box) []any {
		b.do("SET", lockKeys[0], tokenOf("a"))
		return list
	}
}

// held is for a lock that a holds alone, in a mode.
func held(mode string, list ...any) func(*box) []any {
	return func(b *box) []any {
		b.hold(ask{token: "a", mode: mode})
		return list
	}
}

// breaking is for a lock that a holds in a mode, b waits for, and that is broken.
func breaking(holds string) func(*box) []any {
	return func(b *box) []any {
		inTurn(holds, "")(b)
		return []any{strings.Fields(b.do("GET", lockKeys[1]).(string))[0], lockTerms}
	}
}

// begun is for a renewal by a holder that has not asked for its grant.
func begun(mode string) func(*box) []any {
	return func(b *box) []any {
		b.hold(ask{token: "a"})
		b.enter(ask{token: "b", mode: mode, inbox: "in"})
		b.left("a")
		return []any{tokenOf("b"), hour, ""}
	}
}

// What is told of a lock: that its state may be in doubt, or never is.
var (
	alone     = ask{token: "a"}
	newcomer  = ask{token: "c", inbox: "in", span: 1000}
	newReader = ask{token: "c", mode: "s", inbox: "in", span: 1000}
	lockTerms = terms(hour, minute, "0", 1000)
)

// byAnn is for a token that ann has claimed; abandoned, for one that is in doubt as well.
func byAnn(list ...any) func(*box) []any {
	return func(b *box) []any {
		b.granted(claim{})
		return list
	}
}

func abandoned(list ...any) func(*box) []any {
	return func(b *box) []any {
		b.granted(claim{})
		b.extend("ann", 0)
		b.tick()
		return list
	}
}

var misuses = []misuse{
	{"incarnation", scripts.Incarnation, markerKey, 0, args(), ""},
	{"store_restored", scripts.StoreRestored, markerKey, 0, args(), "none"},
	{"store_places", scripts.StorePlaces, markerKey, 0, args(), "none"},
	{"store_leave", scripts.StoreLeave, markerKey, 0, args("10.0.0.1:1"), "none"},
	{"token_issue", scripts.TokenIssue, tokenKey, 0, args(hour, ""), ""},
	{"token_claim", scripts.TokenClaim, tokenKey, 0, args(claiming("ann", "")...), ""},
	{"token_answer", scripts.TokenAnswer, tokenKey[:1], 0, args(), ""},
	{"token_complete", scripts.TokenComplete, tokenKey, 0, args("ann", "done", ""), ""},
	{"token_extend", scripts.TokenExtend, tokenKey, 0, args("ann", minute, keepOpen, ""), ""},
	{"token_release", scripts.TokenRelease, tokenKey, 0, args("ann"), ""},
	{"token_claim: list", scripts.TokenClaim, tokenKey, 1, args(claiming("ann", "")...), ""},
	{"token_complete: list", scripts.TokenComplete, tokenKey, 1, byAnn("ann", "done", ""), ""},
	{"token_extend: list", scripts.TokenExtend, tokenKey, 1, byAnn("ann", minute, keepOpen, ""), ""},
	{"token_release: list", scripts.TokenRelease, tokenKey, 1, byAnn("ann"), ""},
	{"operation_list", scripts.OperationList, tokenKey[1:], 0, args(0, "", 10), ""},
	{"operation_count", scripts.OperationCount, tokenKey[1:], 0, args(), ""},
	{"operation_get", scripts.OperationGet, tokenKey[:1], 0, args(), ""},
	{"operation_settle", scripts.OperationSettle, tokenKey, 0, args("refused", "", "digest", "done", ""), ""},
	{"operation_settle: list", scripts.OperationSettle, tokenKey, 1, abandoned("refused", "", "digest", "done", ""), ""},
	{"operation_forget", scripts.OperationForget, tokenKey[:1], 0, args(), ""},
	{"operation_resolve", scripts.OperationResolve, tokenKey[:1], 0, args("rob", minute, "done"), ""},
	{"counter_get", scripts.CounterGet, counterKeys[:1], 0, args(), "not-an-integer"},
	{"counter_incr: counter", scripts.CounterIncr, counterKeys[:3], 0, args(1, 0, "", "", "", 0, "begin"), "not-an-integer"},
	{"counter_incr: counter, with a request", scripts.CounterIncr, counterKeys, 0, onceBegun, "not-an-integer"},
	{"counter_incr: request", scripts.CounterIncr, counterKeys, 3, onceBegun, ""},
	{"counter_incr: record", scripts.CounterIncr, counterKeys, 1, func(b *box) []any {
		later(b)
		b.run(scripts.CounterEra, openKeys[2:], "", minute)
		return onceBegun(b)
	}, ""},
	{"counter_incr: marker", scripts.CounterIncr, counterKeys, 2, onceBegun, ""},
	{"counter_open: counter", scripts.CounterOpen, openKeys, 0, args(opening{}.args()...), "not-an-integer"},
	{"counter_open: record", scripts.CounterOpen, openKeys, 1, args(opening{}.args()...), ""},
	{"counter_open: marker", scripts.CounterOpen, openKeys, 2, args(opening{}.args()...), ""},
	{"counter_era", scripts.CounterEra, openKeys[2:], 0, args("", minute), ""},
	{"counter_set: record", scripts.CounterSet, openKeys, 1, args(5, 0, hour, "any", "", ""), ""},
	{"counter_set: marker", scripts.CounterSet, openKeys, 2, args(5, 0, hour, "any", "", ""), ""},
	{"counter_retire: counter", scripts.CounterRetire, retireKeys, 0, args(), "not-an-integer"},
	{"counter_retire: record", scripts.CounterRetire, retireKeys, 1, inUse, ""},
	{"counter_retire: marker", scripts.CounterRetire, retireKeys, 2, inUse, ""},
	{"counter_retire: last", scripts.CounterRetire, retireKeys, 3, inUse, ""},
	{"lock_enter: lock, alone", scripts.LockEnter, lockKeys[:5], 0, args(alone.args()...), ""},
	{"lock_enter: fences, alone", scripts.LockEnter, lockKeys[:5], 1, obtained(alone.args()...), ""},
	{"lock_enter: queue, alone", scripts.LockEnter, lockKeys[:5], 2, obtained(alone.args()...), ""},
	{"lock_enter: fences of a lock just obtained", scripts.LockEnter, lockKeys[:5], 1, obtained(append(alone.args(), "OK")...), ""},
	{"lock_enter: queue of a lock just obtained", scripts.LockEnter, lockKeys[:5], 2, obtained(append(alone.args(), "OK")...), ""},
	{"lock_enter: marker, alone", scripts.LockEnter, lockKeys, 5, obtained(ask{token: "a", span: 1000}.args()...), ""},
	{"lock_enter: lock that is held", scripts.LockEnter, lockKeys, 0, inTurn("", "", newcomer.args()...), ""},
	{"lock_enter: fences of a lock that is held", scripts.LockEnter, lockKeys, 1, inTurn("", "", newcomer.args()...), ""},
	{"lock_enter: queue of a lock that is held", scripts.LockEnter, lockKeys, 2, inTurn("", "", newcomer.args()...), ""},
	{"lock_enter: waiters of a lock that is held", scripts.LockEnter, lockKeys, 3, inTurn("", "", newcomer.args()...), ""},
	{"lock_enter: holders of a lock that is held by one", scripts.LockEnter, lockKeys, 4, inTurn("", "s", newcomer.args()...), ""},
	{"lock_enter: holders of a lock that is held by some", scripts.LockEnter, lockKeys, 4, inTurn("s", "", newReader.args()...), ""},
	{"lock_enter: holders of a lock that is free", scripts.LockEnter, lockKeys, 4, args(newReader.args()...), ""},
	{"lock_enter: marker of a lock that is held", scripts.LockEnter, lockKeys, 5, inTurn("", "", newcomer.args()...), ""},
	{"lock_enter: marker of a lock that is free", scripts.LockEnter, lockKeys, 5, args(newReader.args()...), ""},
	{"lock_enter: fences of one who holds with others", scripts.LockEnter, lockKeys[:5], 1, held("s", ask{token: "a", mode: "s"}.args()...), ""},
	{"lock_enter: waiters of one whose turn has come", scripts.LockEnter, lockKeys[:5], 3, func(b *box) []any {
		inTurn("", "")(b)
		b.do("DEL", lockKeys[0])
		return ask{token: "b", inbox: "in"}.args()
	}, ""},
	{"lock_renew: lock", scripts.LockRenew, lockKeys[:5], 0, held("", tokenOf("a"), hour, ""), ""},
	{"lock_renew: fences", scripts.LockRenew, lockKeys[:5], 1, held("", tokenOf("a"), hour, ""), ""},
	{"lock_renew: fences of one who holds with others", scripts.LockRenew, lockKeys[:5], 1, held("s", tokenOf("a"), hour, ""), ""},
	{"lock_renew: holders", scripts.LockRenew, lockKeys[:5], 4, held("s", tokenOf("a"), hour, ""), ""},
	{"lock_renew: queue of one who began with its message", scripts.LockRenew, lockKeys[:5], 2, begun(""), ""},
	{"lock_renew: waiters of one who began with its message", scripts.LockRenew, lockKeys[:5], 3, begun(""), ""},
	{"lock_renew: queue of one who holds with others", scripts.LockRenew, lockKeys[:5], 2, begun("s"), ""},
	{"lock_renew: waiters of one who holds with others", scripts.LockRenew, lockKeys[:5], 3, begun("s"), ""},
	{"lock_leave: lock", scripts.LockLeave, lockKeys, 0, inTurn("", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: fences", scripts.LockLeave, lockKeys, 1, inTurn("", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: queue", scripts.LockLeave, lockKeys, 2, inTurn("", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: waiters", scripts.LockLeave, lockKeys, 3, inTurn("", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: holders", scripts.LockLeave, lockKeys, 4, inTurn("s", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: holders of a lock that one has", scripts.LockLeave, lockKeys[:5], 4, inTurn("", "", tokenOf("a"), "", terms(hour, minute, "0", 0)), ""},
	{"lock_leave: holders of a lock that one has and readers wait for", scripts.LockLeave, lockKeys[:5], 4, inTurn("", "s", tokenOf("a"), "in", terms(hour, minute, "0", 0)), ""},
	{"lock_leave: holders of a lock that is free", scripts.LockLeave, lockKeys[:5], 4, func(b *box) []any {
		inTurn("", "")(b)
		b.enter(ask{token: "c", inbox: "in"})
		b.do("DEL", lockKeys[0])
		return []any{tokenOf("b"), "", terms(hour, minute, "0", 0)}
	}, ""},
	{"lock_leave: marker", scripts.LockLeave, lockKeys, 5, inTurn("", "", tokenOf("a"), "in", lockTerms), ""},
	{"lock_leave: lock, alone", scripts.LockLeave, lockKeys[:5], 0, obtained(tokenOf("a"), "", terms(hour, minute, "0", 0)), ""},
	{"lock_leave: queue, alone", scripts.LockLeave, lockKeys[:5], 2, obtained(tokenOf("a"), "", terms(hour, minute, "0", 0)), ""},
	{"lock_leave: lock of one who waits", scripts.LockLeave, lockKeys, 0, inTurn("", "", tokenOf("b"), "in", lockTerms), ""},
	{"lock_leave: queue of one who waits", scripts.LockLeave, lockKeys, 2, inTurn("", "", tokenOf("b"), "in", lockTerms), ""},
	{"lock_leave: waiters of one who waits", scripts.LockLeave, lockKeys, 3, inTurn("", "", tokenOf("b"), "in", lockTerms), ""},
	{"lock_break: lock", scripts.LockBreak, lockKeys, 0, breaking(""), ""},
	{"lock_break: fences", scripts.LockBreak, lockKeys, 1, breaking(""), ""},
	{"lock_break: queue", scripts.LockBreak, lockKeys, 2, breaking(""), ""},
	{"lock_break: waiters", scripts.LockBreak, lockKeys, 3, breaking(""), ""},
	{"lock_break: holders", scripts.LockBreak, lockKeys, 4, breaking("s"), ""},
	{"lock_break: holders of a lock that one has", scripts.LockBreak, lockKeys[:5], 4, func(b *box) []any {
		breaking("")(b)
		return []any{strings.Fields(b.do("GET", lockKeys[1]).(string))[0], terms(hour, minute, "0", 0)}
	}, ""},
	{"lock_break: marker", scripts.LockBreak, lockKeys, 5, breaking(""), ""},
	{"lock_get: lock", scripts.LockGet, lockKeys[:5], 0, inTurn("", "", 10, 10), ""},
	{"lock_get: fences", scripts.LockGet, lockKeys[:5], 1, inTurn("", "", 10, 10), ""},
	{"lock_get: queue", scripts.LockGet, lockKeys[:5], 2, inTurn("", "", 10, 10), ""},
	{"lock_get: waiters", scripts.LockGet, lockKeys[:5], 3, inTurn("", "", 10, 10), ""},
	{"lock_get: holders", scripts.LockGet, lockKeys[:5], 4, inTurn("s", "", 10, 10), ""},
	{"lock_note", scripts.LockNote, listKey, 0, args("name", hour), ""},
	{"lock_names", scripts.LockNames, listKey, 0, args("0", "", 10), ""},
	{"worker_create: pool", scripts.WorkerCreate, poolKeys, 0, args("41/10/12", "0", "0", 2, hour, 0, ""), ""},
	{"worker_create: index of a lost pool", scripts.WorkerCreate, poolKeys, 1, func(b *box) []any {
		b.lease(lease{nonce: "n1"})
		b.setHead("incarnation", "before")
		return []any{"41/10/12", "0", "0", 2, hour, 0, 0}
	}, ""},
	{"worker_create: names of a lost pool", scripts.WorkerCreate, poolKeys, 2, func(b *box) []any {
		b.lease(lease{nonce: "n1"})
		b.setHead("incarnation", "before")
		return []any{"41/10/12", "0", "0", 2, hour, 0, 0}
	}, ""},
	{"worker_acquire: pool", scripts.WorkerAcquire, poolKeys, 0, args(next.args()...), ""},
	{"worker_acquire: index of a new pool", scripts.WorkerAcquire, poolKeys, 1, args(next.args()...), ""},
	{"worker_acquire: index of an unknown pool", scripts.WorkerAcquire, poolKeys, 1, args(unsure.args()...), ""},
	{"worker_acquire: index of a declared pool", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.create(lease{})
		return next.args()
	}, ""},
	{"worker_acquire: index of a pool with room", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.lease(lease{nonce: "a"})
		return next.args()
	}, ""},
	{"worker_acquire: index of a ring with a free slot", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.giveBack(b.fill()[1])
		return next.args()
	}, ""},
	{"worker_acquire: index of a ring with a free slot of the same identity", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.giveBack(b.lease(lease{nonce: "a", identity: "ann"}))
		return lease{nonce: "b", identity: "ann"}.args()
	}, ""},
	{"worker_acquire: index of a full ring", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.fill()
		return next.args()
	}, ""},
	{"worker_acquire: index of a full ring that was not counted", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.fill()
		b.setHead("next", 0)
		return next.args()
	}, ""},
	{"worker_acquire: index of a lost pool", scripts.WorkerAcquire, poolKeys, 1, func(b *box) []any {
		b.lease(lease{nonce: "a"})
		b.setHead("incarnation", "before")
		return next.args()
	}, ""},
	{"worker_acquire: names of a new pool", scripts.WorkerAcquire, poolKeys, 2, args(next.args()...), ""},
	{"worker_acquire: names of an unknown pool", scripts.WorkerAcquire, poolKeys, 2, args(unsure.args()...), ""},
	{"worker_acquire: names of a pool with room", scripts.WorkerAcquire, poolKeys, 2, func(b *box) []any {
		b.lease(lease{nonce: "a"})
		return next.args()
	}, ""},
	{"worker_acquire: names of a lost pool", scripts.WorkerAcquire, poolKeys, 2, func(b *box) []any {
		b.lease(lease{nonce: "a"})
		b.do("HDEL", poolKeys[0], "s:0")
		return next.args()
	}, ""},
	{"worker_renew: pool", scripts.WorkerRenew, poolKeys, 0, args(claimed.proof().args()...), ""},
	{"worker_renew: pool, of no ttl", scripts.WorkerRenew, poolKeys, 0, args("0", "n1", "1", "", 0, "wait", "", "", "", "", "", "", "", 0), ""},
	{"worker_renew: index", scripts.WorkerRenew, poolKeys, 1, func(b *box) []any { return b.lease(lease{nonce: "n1"}).proof().args() }, ""},
	{"worker_renew: index of a lost pool", scripts.WorkerRenew, poolKeys, 1, func(b *box) []any { return lost(b).args() }, ""},
	{"worker_renew: index of a pool that is trusted to be new", scripts.WorkerRenew, poolKeys, 1, func(b *box) []any { return trusted(b).args() }, ""},
	{"worker_renew: index of a declared pool", scripts.WorkerRenew, poolKeys, 1, func(b *box) []any {
		p := lost(b)
		b.create(lease{})
		return p.args()
	}, ""},
	{"worker_renew: names of a lost pool", scripts.WorkerRenew, poolKeys, 2, func(b *box) []any { return lost(b).args() }, ""},
	{"worker_renew: names of a pool that is trusted to be new", scripts.WorkerRenew, poolKeys, 2, func(b *box) []any { return trusted(b).args() }, ""},
	{"worker_renew: names of a declared pool", scripts.WorkerRenew, poolKeys, 2, func(b *box) []any {
		p := lost(b)
		b.create(lease{})
		return p.args()
	}, ""},
	{"worker_release: pool", scripts.WorkerRelease, poolKeys[:2], 0, args("0", "n1", "1", "", 0), ""},
	{"worker_release: index", scripts.WorkerRelease, poolKeys[:2], 1, func(b *box) []any {
		g := b.lease(lease{nonce: "n1"})
		return []any{g.id, g.nonce, g.from, "", 0}
	}, ""},
	{"worker_get: pool", scripts.WorkerGet, poolKeys[:2], 0, args(0, 10), ""},
	{"worker_get: index", scripts.WorkerGet, poolKeys[:2], 1, func(b *box) []any {
		b.lease(lease{nonce: "n1"})
		return []any{0, 10}
	}, ""},
	{"name_add", scripts.NameAdd, nameKey, 0, args("orders"), ""},
	{"name_list", scripts.NameList, nameKey, 0, args("", "", 10), ""},
	{"name_remove", scripts.NameRemove, nameKey, 0, args("orders"), ""},
	{"key_add", scripts.KeyAdd, apiKeys, 0, args("k", "{}"), ""},
	{"key_remove", scripts.KeyRemove, apiKeys, 0, args("k"), ""},
	{"key_list", scripts.KeyList, apiKeys, 0, args(), ""},
	{"limit_take", scripts.LimitTake, limitKey, 0, args(1, 1, 5, minute*1000, 5), ""},
	{"ledger_append", scripts.LedgerAppend, ledgerKey, 0, args("{}"), ""},
	{"ledger_list", scripts.LedgerList, ledgerKey, 0, args(10), ""},
}

func TestKeyOfAnotherKindIsAnErrorAndNothingChanges(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, misuse := range misuses {
			t.Run(misuse.name, func(t *testing.T) {
				b := b.on(t)
				b.do("FLUSHALL")
				args := misuse.before(b)
				b.do("DEL", misuse.keys[misuse.list])
				b.do("RPUSH", misuse.keys[misuse.list], "a", "b")
				before := b.look(misuse.keys...)
				reply, err := b.try(misuse.script, misuse.keys, args...)
				switch {
				case misuse.answer != "":
					expect.NoError(t, lastAsked(t), err)
					want(t, reply, misuse.answer)
				case err == nil:
					t.Errorf("%s: got %q, want an error", lastAsked(t), reply)
				case !strings.Contains(err.Error(), "WRONGTYPE"):
					t.Errorf("got the error %v, want one with WRONGTYPE", err)
				}
				b.same(before)
			})
		}
	})
}

func TestEveryKeyOfEveryScriptIsMisused(t *testing.T) {
	texts := readAll(t, "*.lua")
	for _, script := range all {
		for _, found := range documented.FindAllStringSubmatch(parse(script.Name, texts[script.Name]).header["KEYS"], -1) {
			at := int(number(t, found[1])) - 1
			if script == scripts.CounterSet && at == 0 { // it sets a counter whatever was there
				continue
			}
			if !slices.ContainsFunc(misuses, func(m misuse) bool { return m.script == script && m.list == at }) {
				t.Errorf("no test gives %s a list for KEYS[%s]", script.Name, found[1])
			}
		}
	}
}

// inUse has a counter that was last used before state may have been lost, so that its record
// counts.
func inUse(b *box) []any {
	b.do("SET", openKeys[0], "7")
	later(b)
	b.run(scripts.CounterEra, openKeys[2:], "", minute)
	return nil
}
