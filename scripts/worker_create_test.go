package scripts_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
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
	return b.run(scripts.WorkerCreate, poolKeys, l.layout, l.epoch, l.datacenter, l.bits, l.ttl, l.longest, "")
}

func TestDeclaredPoolGrantsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		before := b.now()
		reply := b.tryCreate(lease{datacenter: 3, ttl: minute, bits: 4})
		word(t, reply, "created", 1)
		between(t, "now", number(t, reply[1]), before, b.now())
		b.sound()
		if page := b.run(scripts.WorkerGet, poolKeys[:2], 0, 1); page[6] != "0" || page[7] != "0" || page[12] != "" {
			t.Errorf("the new pool is %q", page)
		}
		want(t, b.acquire(lease{nonce: "n0", newPools: "wait", wantTTL: "3600000"}), "layout", "41/10/12", "1700000000000", "3", "60000", "0")
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
			want(t, b.tryCreate(l), "exists", "41/10/12", "1700000000000", "0", "3600000", "0")
		}
		b.same(before)
		b.do("FLUSHALL")
		b.lease(lease{nonce: "n1"}) // or by its first grant
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000", "0")
	})
}

func TestDeclarationEndsTheWaitOfAnUnknownPool(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ask := lease{nonce: "n1", newPools: "wait"}
		word(t, b.acquire(ask), "quarantined", 3)
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
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000", "0")
		b.do("HDEL", poolKeys[0], "pool")
		want(t, b.tryCreate(lease{}), "exists", "", "", "", "0", "0")
		b.quarantined(lease{}, 0)
		want(t, b.tryCreate(lease{}), "exists", "", "", "", "3600000", "0")
	})
}

// Nothing lies beside a pool that was only declared. A head that cannot be read says that it is
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
		word(t, b.acquire(lease{nonce: "n1"}), "quarantined", 3)
		want(t, b.tryCreate(lease{}), "exists", "41/10/12", "1700000000000", "0", "3600000", "0")
		word(t, b.acquire(lease{nonce: "n1"}), "quarantined", 3)
	})
}

// reshape gives a pool that is there another shape.
func (b *box) reshape(l lease) []string {
	b.Helper()
	l = l.withDefaults()
	return b.run(scripts.WorkerCreate, poolKeys, l.layout, l.epoch, l.datacenter, l.bits, l.ttl, l.longest, l.skew)
}

func TestPoolIsReplacedOnceItsWindowsHaveEndedByEveryClock(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0", identity: "ann"})
		b.lease(lease{nonce: "n1"})
		other := lease{layout: "41/5/5/12", datacenter: 3, bits: 5, ttl: minute, skew: minute}
		refusal := b.reshape(other)
		word(t, refusal, "exists", 5)
		between(t, "the wait", number(t, refusal[5]), hour, hour+minute)
		b.pass(hour + 30_000) // they have ended by this clock
		refusal = b.reshape(other)
		word(t, refusal, "exists", 5)
		between(t, "the wait", number(t, refusal[5]), 1, 31_000)
		b.pass(minute)
		word(t, b.reshape(other), "created", 1)
		next := b.lease(lease{nonce: "n2", identity: "ann", newPools: "wait"})
		if next.id != "0" || next.fence <= g.fence || next.ttl != minute {
			t.Errorf("after the change: got %+v, want worker id 0, a fence above %d and a ttl of a minute", next, g.fence)
		}
		expect.Equal(t, "layout now", b.head()["layout"], "41/5/5/12")
		b.sound()
	})
}

// What may have been lost is waited for first.
func TestPoolThatMayHaveLostStateIsNotReplaced(t *testing.T) {
	for name, lose := range map[string]func(b *box){
		"another incarnation": func(b *box) { b.setHead("incarnation", "before") },
		"a record":            func(b *box) { b.do("HDEL", poolKeys[0], "s:0") },
		"the head":            func(b *box) { b.do("HDEL", poolKeys[0], "pool") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.lease(lease{nonce: "n0"})
				b.lease(lease{nonce: "n1"})
				b.pass(2 * hour)
				lose(b)
				refusal := b.reshape(lease{skew: minute})
				word(t, refusal, "exists", 5)
				between(t, "the wait", number(t, refusal[5]), hour, hour+minute)
				b.quarantined(lease{}, b.now()+minute)
			})
		})
	}
}

// A pool may be so wide that a look at each worker id holds up Redis for seconds.
func TestReplacingAWidePoolReadsNoMoreThanItsRecords(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *box){
		"whole":    func(*box) {},
		"headless": func(b *box) { b.do("HDEL", poolKeys[0], "pool") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, redistest.Start(t))
			wide := lease{layout: "31/20/12@s", bits: 20, skew: minute}
			for _, nonce := range []string{"n0", "n1"} {
				wide.nonce = nonce
				b.lease(wide)
			}
			lose(b)
			before := b.commands()["hget"]
			word(t, b.reshape(wide), "exists", 5)
			if reads := b.commands()["hget"] - before; reads > 20 {
				t.Errorf("%s: got %d reads of a hash's field for a pool with 2 records, want 20 at most", lastAsked(t), reads)
			}
		})
	}
}
