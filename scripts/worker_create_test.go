package scripts_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

// create declares a pool new.
func (b *box) create(l lease) {
	b.Helper()
	word(b, b.tryCreate(l), "created", 1)
}

func (b *box) tryCreate(l lease) []string {
	b.Helper()
	l = l.withDefaults()
	return b.run(scripts.WorkerCreate, poolKeys[:1], l.layout, l.epoch, l.datacenter, l.bits, l.ttl)
}

func TestDeclaredPoolGrantsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		reply := b.tryCreate(lease{datacenter: 3, ttl: minute, bits: 4})
		word(t, reply, "created", 1)
		between(t, "now", number(t, reply[1]), before, b.now())
		b.sound()
		if page := b.run(scripts.WorkerGet, poolKeys[:1], 0, 1); page[6] != "0" || page[7] != "0" || page[9] != "" {
			t.Errorf("the new pool is %q", page)
		}
		want(t, b.acquire(lease{nonce: "n0", newPools: "wait", wantTTL: "3600000"}), "layout", "41/10/12", "1700000000000", "3", "60000")
		granted := b.acquire(lease{nonce: "n1", newPools: "wait"})
		word(t, granted, "granted", 11)
		want(t, append([]string{granted[1], granted[5]}, granted[7:]...), "0", "60000", "41/10/12", "1700000000000", "3", "4", "0")
		b.sound()
	})
}

func TestPoolIsDeclaredOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.create(lease{})
		before := b.look(poolKeys...)
		for _, l := range []lease{{}, {layout: "x", epoch: "1", bits: 9, ttl: minute}} {
			want(t, b.tryCreate(l), "exists", "41/10/12", "1700000000000", "0", "3600000")
		}
		b.same(before)
		b.do("FLUSHALL")
		b.lease(lease{nonce: "n1"}) // or by its first grant
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000")
	})
}

func TestDeclarationEndsTheWaitOfAnUnknownPool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ask := lease{nonce: "n1", newPools: "wait"}
		word(t, b.acquire(ask), "quarantined", 1)
		b.create(lease{})
		word(t, b.acquire(ask), "granted", 11)
		b.sound()
	})
}

// A pool that was lost and not declared again is known by the renewals of its holders.
func TestPoolWithARecordIsNotNew(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n1"})
		b.do("FLUSHALL")
		word(t, b.prove(g.proof()), "ok", 3)
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000")
		b.do("HDEL", poolKeys[0], "pool")
		want(t, b.tryCreate(lease{}), "exists", "", "", "", "0")
		b.quarantined(lease{}, 0)
		want(t, b.tryCreate(lease{}), "exists", "", "", "", "3600000")
	})
}

// Nothing lies beside a pool that was only declared. A head that can not be read says that it is
// known all the same.
func TestDeclaredPoolWithASpoiltHeadIsNotNew(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.create(lease{})
		b.spoil("ttl", "long")
		b.quarantined(lease{newPools: "trust"}, b.now()+hour)
	})
}

func TestDeclaredPoolIsLostLikeAnyOther(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.create(lease{})
		b.setHead("incarnation", "before")
		word(t, b.acquire(lease{nonce: "n1"}), "quarantined", 1)
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000")
		word(t, b.acquire(lease{nonce: "n1"}), "quarantined", 1)
	})
}
