package scripts_test

import (
	"slices"
	"strings"
	"testing"

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

var misuses = []misuse{
	{"incarnation", scripts.Incarnation, markerKey, 0, args(), ""},
	{"token_issue", scripts.TokenIssue, tokenKey, 0, args(hour, ""), ""},
	{"token_get", scripts.TokenGet, tokenKey, 0, args(), ""},
	{"token_claim", scripts.TokenClaim, tokenKey, 0, args("ann", "print", minute, "hold", hour, "", "any"), ""},
	{"token_complete", scripts.TokenComplete, tokenKey, 0, args("ann", "done", hour), ""},
	{"token_extend", scripts.TokenExtend, tokenKey, 0, args("ann", minute, hour), ""},
	{"token_release", scripts.TokenRelease, tokenKey, 0, args("ann"), ""},
	{"counter_get", scripts.CounterGet, counterKeys[:1], 0, args(), "not-an-integer"},
	{"counter_incr: counter", scripts.CounterIncr, counterKeys, 0, args(1, 0), "not-an-integer"},
	{"counter_incr: counter, with a request", scripts.CounterIncr, counterKeys, 0, args(1, hour), "not-an-integer"},
	{"counter_incr: request", scripts.CounterIncr, counterKeys, 1, func(b *box) []any {
		b.do("SET", counterKeys[0], 5)
		return []any{1, hour}
	}, ""},
	{"worker_create", scripts.WorkerCreate, poolKeys[:1], 0, args("41/10/12", "0", "0", 2, hour), ""},
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
	{"worker_renew: pool, of no ttl", scripts.WorkerRenew, poolKeys, 0, args("0", "n1", "1", "", 0, "wait", "", "", "", "", "", "", ""), ""},
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
	{"worker_get", scripts.WorkerGet, poolKeys[:1], 0, args(0, 10), ""},
	{"name_add", scripts.NameAdd, nameKey, 0, args("orders"), ""},
	{"name_list", scripts.NameList, nameKey, 0, args("", "", 10), ""},
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
					if err != nil {
						t.Fatal(err)
					}
					want(t, reply, misuse.answer)
				case err == nil:
					t.Errorf("got %q, want an error", reply)
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
			if !slices.ContainsFunc(misuses, func(m misuse) bool { return m.script == script && m.list == at }) {
				t.Errorf("no test gives %s a list for KEYS[%s]", script.Name, found[1])
			}
		}
	}
}
