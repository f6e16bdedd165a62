package scripts_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Of what a holder tells each part is needed, and has to fit.
var unproven = map[string]func(p *proof, now int64){
	"no end":                    func(p *proof, _ int64) { p.till = "" },
	"an end that has passed":    func(p *proof, now int64) { p.till = now },
	"an end within the skew":    func(p *proof, now int64) { p.till = now + 1000 },
	"an end too far ahead":      func(p *proof, now int64) { p.till = now + hour + 1000 + minute },
	"an end before its start":   func(p *proof, now int64) { p.from, p.till = now+2*minute, now+minute },
	"an end that is no number":  func(p *proof, _ int64) { p.till = "soon" },
	"no fence":                  func(p *proof, _ int64) { p.fence = "" },
	"fence 0":                   func(p *proof, _ int64) { p.fence = 0 },
	"a fence of tomorrow":       func(p *proof, now int64) { p.fence = (now + 24*hour) * 1000 },
	"no layout":                 func(p *proof, _ int64) { p.layout = "" },
	"no epoch":                  func(p *proof, _ int64) { p.epoch = "" },
	"no datacenter":             func(p *proof, _ int64) { p.datacenter = "" },
	"no width":                  func(p *proof, _ int64) { p.bits = "" },
	"an id of another width":    func(p *proof, _ int64) { p.id = "4" },
	"an id with a zero before":  func(p *proof, _ int64) { p.id = "00" },
	"an id below zero":          func(p *proof, _ int64) { p.id = "-1" },
	"half an id":                func(p *proof, _ int64) { p.id = "0.5" },
	"an id that is no number":   func(p *proof, _ int64) { p.id = "x" },
	"a start that is no number": func(p *proof, _ int64) { p.from = "then" },
	"half a start":              func(p *proof, _ int64) { p.from = "1.5" },
	"no nonce":                  func(p *proof, _ int64) { p.nonce = "" },
	"a nonce of two words":      func(p *proof, _ int64) { p.nonce = "a b" },
	"no ttl, and none is known": func(p *proof, _ int64) { p.ttl = "" },
}

func TestVanishedLeaseNeedsTheWholeProof(t *testing.T) {
	for name, spoil := range unproven {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				g := b.lease(lease{nonce: "n0", identity: "ann"})
				b.do("FLUSHALL")
				p := g.proof()
				p.skew = 1000
				spoil(&p, b.now())
				want(t, b.prove(p), "lost")
				if n := b.do("HLEN", poolKeys[0]); n != int64(1) && p.ttl != "" {
					t.Errorf("the pool has %v fields", n)
				}
				p = g.proof()
				p.skew = 1000
				word(t, b.prove(p), "ok", 3) // what was told before does not harm
				b.sound()
			})
		})
	}
}

func TestVanishedLeaseOfAnotherKindOfPoolIsLost(t *testing.T) {
	for name, spoil := range map[string]func(p *proof){
		"layout":     func(p *proof) { p.layout = "41/5/5/12" },
		"epoch":      func(p *proof) { p.epoch = "1" },
		"datacenter": func(p *proof) { p.datacenter = "1" },
		"width":      func(p *proof) { p.bits, p.id = "3", "7" },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				g := b.lease(lease{nonce: "n0"})
				b.lease(lease{nonce: "n1"})
				b.do("HDEL", poolKeys[0], "s:0")
				b.quarantined(lease{}, 0)
				before := b.look(poolKeys...)
				p := g.proof()
				spoil(&p)
				want(t, b.prove(p), "lost")
				p = g.proof()
				p.ttl = minute
				want(t, b.prove(p), "layout", "41/10/12", "1700000000000", "0", "3600000", "0")
				b.same(before)
			})
		})
	}
}

func TestVanishedLeaseIsWrittenDownAnew(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0", identity: "ann"})
		b.do("FLUSHALL")

		reply := b.prove(g.proof())
		word(t, reply, "ok", 3)
		want(t, b.record("0"), "n0", fmt.Sprint(g.from), reply[1], fmt.Sprint(g.fence), "h", "ann")
		head := b.head()
		for part, value := range map[string]string{
			"layout": "41/10/12", "epoch": "1700000000000", "datacenter": "0", "bits": "2", "ttl": "3600000", "records": "1", "fence": fmt.Sprint(g.fence),
		} {
			expect.Equal(t, "in the head of the restored pool: "+part, head[part], value)
		}
		b.sound()
		// And then it is a lease as any other: no other holder gets its id, in quarantine and after
		// it.
		b.quarantined(lease{}, g.till)
		word(t, b.renew(g, ""), "ok", 3)
		want(t, b.prove(grant{nonce: "other", id: "0", from: g.from, till: g.till, fence: g.fence, ttl: hour}.proof()), "lost")
		want(t, b.prove(grant{nonce: "other", id: "0", from: g.from + 1, till: g.till, fence: g.fence, ttl: hour}.proof()), "lost")
		b.setHead("quarantine", b.now())
		for i := range 3 {
			if next := b.lease(lease{nonce: fmt.Sprint("m", i)}); next.id == g.id || next.fence <= g.fence {
				t.Errorf("%+v is granted beside %+v", next, g)
			}
		}
		word(t, b.acquire(lease{nonce: "m4"}), "exhausted", 1)
		if again := b.lease(lease{nonce: "n0"}); again.id != g.id || again.from != g.from {
			t.Errorf("a repeat got %+v, want %+v", again, g)
		}
		b.free(g)
		expect.Equal(t, "the worker id of the same identity", b.lease(lease{nonce: "m5", identity: "ann"}).id, g.id)
	})
}

func TestFencesRiseBehindARestoredOne(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0"})
		b.do("FLUSHALL")
		p := g.proof()
		p.skew = 2 * minute
		p.fence = (b.now() + minute) * 1000 // of a server whose clock is ahead
		word(t, b.prove(p), "ok", 3)
		b.setHead("quarantine", 0)
		expect.Equal(t, "the next fence", b.lease(lease{nonce: "n1"}).fence, p.fence.(int64)+1)
	})
}

func TestRestoredGrantKeepsItsFenceAndThePoolItsOwn(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0"})
		last := b.lease(lease{nonce: "n1"})
		const ahead = 9007199254740000
		b.setHead("fence", ahead)
		b.do("HDEL", poolKeys[0], "s:"+g.id)
		word(t, b.prove(g.proof()), "ok", 3)
		expect.Equal(t, "the restored grant's fence", b.record(g.id)[3], fmt.Sprint(g.fence))
		expect.Equal(t, "the other grant's fence", b.record(last.id)[3], fmt.Sprint(last.fence))
		b.setHead("quarantine", 0)
		expect.Equal(t, "the next fence", b.lease(lease{nonce: "n2"}).fence, ahead+1)
	})
}

// A record of a time before the grant does not stand in its way; one that may be younger, or was
// open after the grant's start, does.
func TestVanishedLeaseGoesOverOlderRecordsOnly(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.lease(lease{nonce: "keep"})
		now := b.now()
		g := grant{nonce: "mine", id: "1", from: now - minute, till: now + 2*minute, fence: 77, ttl: hour}
		for name, row := range map[string]struct {
			nonce      string
			from, till int64
			state      string
			identity   string
			ok         bool
		}{
			"ended before it began":        {"old", now - hour, now - 2*minute, "h", "ann", true},
			"ended as it began":            {"old", now - hour, now - minute, "h", "ann", true},
			"released as it began":         {"old", now - hour, now - minute, "r", "", true},
			"the same nonce, before":       {"mine", now - hour, now - minute, "r", "", true},
			"ended after its start":        {"old", now - hour, now - minute + 1, "h", "ann", false},
			"released after its start":     {"old", now - hour, now - minute + 1, "r", "ann", false},
			"open":                         {"old", now - hour, now + hour, "h", "ann", false},
			"younger and open":             {"new", now - minute + 1, now + hour, "h", "ann", false},
			"younger and ended":            {"new", now - minute + 1, now - 1, "h", "ann", false},
			"begun with it":                {"new", now - minute, now - minute, "r", "ann", false},
			"its own, released":            {"mine", now - minute, now - 1, "r", "ann", false},
			"another's with the same end":  {"new", now - minute, now + 2*minute, "h", "ann", false},
			"of the same nonce, but later": {"mine", now - 1, now + hour, "h", "ann", false},
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				record := fmt.Sprintf("%s %d %d 76 %s %s", row.nonce, row.from, row.till, row.state, row.identity)
				b.do("HSET", poolKeys[0], "s:1", record)
				b.setHead("records", 2)
				b.do("ZADD", poolKeys[1], row.till, "1")
				b.do("DEL", poolKeys[2])
				b.do("HSET", poolKeys[2], "n:"+row.nonce, "1", "i:ann", "1")
				before := b.look(poolKeys...)
				if !row.ok {
					want(t, b.prove(g.proof()), "lost")
					b.same(before)
					return
				}
				word(t, b.prove(g.proof()), "ok", 3)
				if r := b.record("1"); r[0] != "mine" || r[4] != "h" || r[1] != fmt.Sprint(g.from) {
					t.Errorf("the record is %q", r)
				}
				names := b.fields(poolKeys[2])
				if names["n:mine"] != "1" || names["n:old"] != "" || row.identity != "" && names["i:ann"] != "" {
					t.Errorf("the names are %v", names)
				}
				b.sound()
			})
		}
	})
}

func TestRenewalInQuarantineNeedsMoreThanTheSkew(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const skew = 10 * minute
		for name, row := range map[string]struct {
			left  int64 // of the record
			told  int64 // what the holder says is left; 0 = nothing
			lapse bool  // the quarantine is over
			reply string
		}{
			"less left":                     {skew - 1, 0, false, "lost"},
			"more left":                     {skew + 20*minute, 0, false, "ok"},
			"less left, more is told":       {skew - 1, skew + 20*minute, false, "ok"},
			"less left, less is told":       {skew - 1, skew - 1, false, "lost"},
			"ended, more is told":           {-1, skew + 20*minute, false, "ok"},
			"ended, less is told":           {-1, skew - 1, false, "lost"},
			"too much is told":              {skew - 1, 3 * hour, false, "lost"},
			"less left, over":               {skew - 1, 0, true, "ok"},
			"ended, over":                   {-1, 0, true, "lost"},
			"less left, less is told, over": {skew - minute, skew - 1, true, "ok"},
		} {
			t.Run(name, func(t *testing.T) {
				b := b.on(t)
				b.do("FLUSHALL")
				g := b.lease(lease{nonce: "n0"})
				by := hour - row.left
				b.pass(by)
				g = g.past(by)
				b.setHead("incarnation", "before")
				b.quarantined(lease{skew: skew}, 0)
				if row.lapse {
					b.setHead("quarantine", b.now())
				}
				before := b.look(poolKeys...)
				p := g.proof()
				p.skew, p.till = skew, ""
				if row.told != 0 {
					p.till = b.now() + row.told
				}
				reply := b.prove(p)
				expect.MustEqual(t, lastAsked(t), reply[0], row.reply)
				if row.reply == "lost" {
					b.same(before)
				}
			})
		}
	})
}

// A renewal of an unknown pool under `trust` says that it was one; what it cannot prove stays
// unwritten.
func TestRenewalThatProvesNothingLeavesNothingUnderTrust(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := grant{nonce: "n", id: "0", from: 1, till: 2, fence: 3, ttl: hour}.proof()
		p.newPools = "trust"
		before := b.look(poolKeys...)
		want(t, b.prove(p), "lost")
		p.ttl = ""
		want(t, b.prove(p), "lost")
		b.same(before)
	})
}

// Without a ttl it is not known how long to wait, so nothing is said of the pool. The next that
// tells one is heard.
func TestRenewalWithoutATTLSaysNothingOfAPoolWithoutAHead(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		g := b.lease(lease{nonce: "n0"})
		b.do("HDEL", poolKeys[0], "pool")
		before := b.look(poolKeys...)
		want(t, b.renew(g, ""), "lost")
		b.same(before)
		b.do("HSET", poolKeys[0], "pool", "spoilt")
		before = b.look(poolKeys...)
		want(t, b.renew(g, ""), "lost")
		b.same(before)
		word(t, b.renew(g, hour), "ok", 3)
		b.quarantined(lease{}, g.till)
		word(t, b.renew(g, ""), "ok", 3)
	})
}

// Also where nothing has to be waited for, as in a pool that was declared new.
func TestVanishedLeaseNeedsMoreThanTheSkewWithoutAQuarantine(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.create(lease{})
		now := b.now()
		p := grant{nonce: "n", id: "0", from: now - minute, till: now + minute, fence: 1, ttl: hour}.proof()
		p.skew = minute
		before := b.look(poolKeys...)
		want(t, b.prove(p), "lost")
		b.same(before)
		p.skew = 1000
		word(t, b.prove(p), "ok", 3)
		b.sound()
	})
}
