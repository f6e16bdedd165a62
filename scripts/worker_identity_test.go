package scripts_test

import (
	"maps"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestIdentityGetsItsIDAgain(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", identity: "ann"})
		b.free(first)
		b.lease(lease{nonce: "n2"})
		second := b.lease(lease{nonce: "n3", identity: "ann"})
		if second.id != first.id || second.from < first.from || second.fence <= first.fence {
			t.Errorf("leased by the same identity: got %+v, want the id of %+v, no earlier window and a larger fence", second, first)
		}
		b.pass(2 * hour) // its window lapses
		if third := b.lease(lease{nonce: "n4", identity: "ann"}); third.id != first.id || third.from < second.till-2*hour {
			t.Errorf("leased by the same identity after its window has lapsed: got %+v, want the id of %+v and a window behind its own", third, second)
		}
		if names := b.fields(poolKeys[2]); !maps.Equal(names, map[string]string{"n:n2": "1", "n:n4": "0", "i:ann": "0"}) {
			t.Errorf("the names are %v", names)
		}
		b.sound()
	})
}

func TestIdentityIsHonouredOnlyBehindTheWindow(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", identity: "ann"})
		second := b.lease(lease{nonce: "n2", identity: "ann"})
		if second.id == first.id {
			t.Fatalf("two holders have worker id %s", first.id)
		}
		b.pass(2 * hour)
		expect.Equal(t, "the worker id, the last of that identity", b.lease(lease{nonce: "n3", identity: "ann"}).id, second.id)
		word(t, b.acquire(lease{nonce: "n4", identity: "ann"}), "granted", 11)
		b.sound()
	})
}

func TestTwoHoldersOfOneIdentityEndApart(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", identity: "ann", bits: 1})
		second := b.lease(lease{nonce: "n2", identity: "ann", bits: 1})
		b.free(first)
		expect.MustEqual(t, "the worker id that is free", b.lease(lease{nonce: "n3", identity: "bob", bits: 1}).id, first.id)
		if names := b.fields(poolKeys[2]); !maps.Equal(names, map[string]string{"n:n2": "1", "n:n3": "0", "i:ann": "1", "i:bob": "0"}) {
			t.Errorf("the names are %v", names)
		}
		word(t, b.renew(second, ""), "ok", 3)
		b.free(second)
		expect.Equal(t, "the worker id of that identity", b.lease(lease{nonce: "n4", identity: "ann", bits: 1}).id, second.id)
	})
}

func TestIdentityFollowsTheSlot(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.lease(lease{nonce: "n1", identity: "ann", bits: 1})
		b.free(first)
		b.lease(lease{nonce: "n2", identity: "bob", bits: 1})
		g := b.lease(lease{nonce: "n3", identity: "bob", bits: 1}) // bob's own is still open
		expect.MustEqual(t, "the worker id that is free", g.id, first.id)
		if names := b.fields(poolKeys[2]); !maps.Equal(names, map[string]string{"n:n2": "1", "n:n3": "0", "i:bob": "0"}) {
			t.Errorf("the names are %v", names)
		}
		b.free(g)
		expect.Equal(t, "the worker id that alone is free", b.lease(lease{nonce: "n4", identity: "ann", bits: 1}).id, first.id)
		// what the names say of bob is no more
		word(t, b.acquire(lease{nonce: "n5", identity: "bob", bits: 1}), "exhausted", 1)
	})
}

// The names say nothing that the records do not: where they disagree, or are gone, the records
// hold.
func TestNamesAreOnlyBelievedWhereTheRecordAgrees(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1", identity: "ann"})
		b.free(g)
		for name, lie := range map[string]func(){
			"another's slot":    func() { b.do("HSET", poolKeys[2], "i:cid", "0", "n:n7", "0") },
			"a slot never used": func() { b.do("HSET", poolKeys[2], "i:cid", "3", "n:n7", "3") },
			"no slot":           func() { b.do("HSET", poolKeys[2], "i:cid", "99", "n:n7", "99") },
			"names deleted":     func() { b.do("DEL", poolKeys[2]) },
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				lie()
				got := b.lease(lease{nonce: "n7", identity: "cid", bits: 2})
				if got.id == g.id || number(t, got.id) > 3 || got.fence <= g.fence {
					t.Errorf("leased where %s: got %+v, want a larger fence and a worker id up to 3 that is not %+v's", name, got, g)
				}
				b.sound()
				b.do("HDEL", poolKeys[0], "s:"+got.id)
				b.do("ZREM", poolKeys[1], got.id)
				b.setHead("records", 1)
				b.setHead("next", 1)
			})
		}
	})
}
