package leasesim

import "testing"

// What the simulation has found wanting in earlier editions of the protocol, step by step.

// stillFacts are those of all who ask it.
var stillFacts = facts{all: true, told: 1, asked: 1, own: 1, waits: map[int64]int64{1: 1}}

// still is a master with a pool that was declared new, at time 0 of a clock that is right.
func still(removed rule) *server {
	s := &sim{config: config{removed: without(removed), ring: maxSlots, trace: -1}, ttl: 1000, skew: 100, margin: 20, lead: 5, unit: 1}
	s.group = &group{}
	s.master = &server{s: s, group: s.group, up: true, master: true, replid: 1, runid: 1, address: 1}
	s.master.create(s.declared(), stillFacts)
	return s.master
}

// TestWindowThatBeginsLaterDoesNotOutliveTheQuarantine: the last holder of a slot gives it back
// with a timestamp that is 391 ahead, and it is granted at once. Then all is lost. A window that is
// a TTL long ends after the quarantine, and so inside of the next one.
func TestWindowThatBeginsLaterDoesNotOutliveTheQuarantine(t *testing.T) {
	for removed, intersect := range map[rule]bool{endsInTime: true, 0: false} {
		v := still(removed)
		var a reply
		for nonce := range int64(maxSlots) {
			a = v.acquire(100+nonce, v.s.ttl, v.s.declared(), 0, stillFacts)
		}
		v.s.now = 500
		v.release(proof{worker: a.worker, nonce: 100 + maxSlots - 1, from: a.from}, 901)
		v.s.now = 510
		b := v.acquire(200, v.s.ttl, v.s.declared(), 0, stillFacts)
		if b.word != granted || b.worker != a.worker || b.from != 901 {
			t.Fatalf("acquire after %+v: got %+v, want the same worker id, granted from 901 on", a, b)
		}
		v.s.now = 520
		v.state = pool{}
		refusal := v.acquire(300, v.s.ttl, v.s.declared(), 0, stillFacts)
		if refusal.word != quarantined {
			t.Fatalf("acquire from a pool that lost its state: got %+v, want it quarantined", refusal)
		}
		v.s.now += refusal.wait
		c := v.acquire(300, v.s.ttl, v.s.declared(), 0, stillFacts)
		for nonce := int64(301); c.word == granted && c.worker != b.worker; nonce++ {
			c = v.acquire(nonce, v.s.ttl, v.s.declared(), 0, stillFacts)
		}
		if c.word != granted || (c.from < b.till) != intersect {
			t.Errorf("without %v: %+v and %+v", removed, b, c)
		}
	}
}

// TestRepeatedAcquireOfAnEndedWindowIsANewGrant: another grant may have used a part of the ended
// one on a server whose state was lost since.
func TestRepeatedAcquireOfAnEndedWindowIsANewGrant(t *testing.T) {
	for removed, same := range map[rule]bool{repeatOpen: true, 0: false} {
		v := still(removed)
		a := v.acquire(100, v.s.ttl, v.s.declared(), 0, stillFacts)
		v.s.now = 999
		if b := v.acquire(100, v.s.ttl, v.s.declared(), 0, stillFacts); b.till != a.till || b.fence != a.fence {
			t.Errorf("without %v: %+v, and while that is open %+v", removed, a, b)
		}
		v.s.now = 1000
		if b := v.acquire(100, v.s.ttl, v.s.declared(), 0, stillFacts); (b.till == a.till) != same {
			t.Errorf("without %v: %+v, and when that had ended %+v", removed, a, b)
		}
	}
}

// TestLateRenewalDoesNotReplaceALaterGrant: the renewal was sent before the release, and comes
// after the next grant of the slot.
func TestLateRenewalDoesNotReplaceALaterGrant(t *testing.T) {
	for removed, replaced := range map[rule]bool{restoreOlder: true, 0: false} {
		v := still(removed)
		var a reply
		for nonce := range int64(maxSlots) {
			a = v.acquire(100+nonce, v.s.ttl, v.s.declared(), 0, stillFacts)
		}
		last := proof{worker: a.worker, nonce: 100 + maxSlots - 1, from: a.from, confirmed: a.till, fence: a.fence}
		v.s.now = 500
		v.release(last, 500)
		if b := v.acquire(200, v.s.ttl, v.s.declared(), 0, stillFacts); b.worker != a.worker {
			t.Fatalf("acquire after %+v: got %+v, want the same worker id, granted from 901 on", a, b)
		}
		v.s.now = 510
		if c := v.renew(last, v.s.declared(), stillFacts); (c.word == granted) != replaced {
			t.Errorf("without %v: %+v", removed, c)
		}
	}
}
