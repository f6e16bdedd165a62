package leasesim

import "maps"

// The scripts, decision by decision as scripts/worker_*.lua take them.

type word int

const (
	granted word = iota
	quarantined
	exhausted
	lost
	refused
	unsettled // it decides nothing: others have to be asked, or the server cannot tell
	failed    // no answer
)

// reply is what a script answers.
type reply struct {
	word             word
	worker           int
	from, till       int64
	fence, now, wait int64
	ttl              int64 // the pool's
	shape            int   // of the pool
	made             int64
	acked            bool
	asks             bool            // the caller has asked another server
	strict           bool            // the caller has to wait for all places
	more             map[int64]int64 // and for these
}

// exec is one run of a script: it decides on a copy of the state.
type exec struct {
	*sim

	v     *server
	facts facts // of the caller
	p     pool
	t     int64 // now, by the server's clock
	wrote bool
}

func (v *server) begin(f facts) *exec {
	return &exec{sim: v.s, v: v, facts: f, p: v.state, t: v.clock()}
}

func (x *exec) end(r reply) reply {
	r.now = x.t
	if x.wrote {
		x.v.state = x.p
		x.v.wrote()
	}
	return r
}

// terms is what a client is configured with: the TTL and the shape of a pool that is new, and the
// longest TTL that it allows.
type terms struct {
	ttl, longest int64
	shape        int
}

// examine notices that state may have been lost, and starts a quarantine. With an answer it has
// done nothing.
func (x *exec) examine(asked terms) (answer *reply) {
	if !x.has(recordsStay) {
		x.expire()
	}
	p, n := &x.p, x.p.count()
	at := x.standing(p.word, p.known)
	if at.refuse {
		x.noteAttached()
		return &reply{word: unsettled, asks: at.asks, strict: at.strict, more: at.more}
	}
	complete := p.known && (p.records == n || !x.has(countedRecords))
	same := complete && at.same
	before, told, allowed := max(p.ttl, p.longest), p.ttl, asked.longest
	if !x.has(longestTTL) {
		allowed = 0
	}
	if !p.fixed {
		told = max(p.ttl, asked.ttl)
	}
	longest := max(told, p.longest, allowed)
	if same && longest == before && told == p.ttl {
		if !p.word.equals(&at.noted) {
			p.word, x.wrote = at.noted, true
		}
		return nil
	}
	if !x.has(oneTTL) {
		longest = asked.ttl
	}
	unknown := !p.known && n == 0
	switch {
	case same && p.quarantine > 0:
		p.quarantine += longest - before
	case same:
	case x.has(quarantine) && (!unknown || x.has(unknownIsLost)):
		p.quarantine = max(p.quarantine, x.t+longest)
		if x.has(quarantineSkew) {
			p.quarantine = max(p.quarantine, x.t+longest+x.skew)
		}
	}
	if !complete {
		p.next = 0
	}
	if !p.fixed {
		p.ttl = told
	}
	p.longest = max(p.longest, allowed)
	p.known, p.records, p.word = true, n, at.noted
	x.wrote = true
	if !same {
		x.losses++
		x.tellf(-1, "server %d notices loss at its %d: %d records, quarantine until %d", x.v.name, x.t, n, p.quarantine)
	}
	return nil
}

// noteAttached adds the replicas that are attached to the places of a word that has some.
func (x *exec) noteAttached() {
	was := x.v.state.word
	if !x.has(refusedNotes) || was.level != 2 || !x.owns(was) {
		return
	}
	places, _ := union(was.places, nil, x.v.addresses()...)
	if !maps.Equal(places, was.places) {
		x.v.state.word.places = places
		x.v.wrote()
	}
}

func (x *exec) expire() {
	for i := range x.p.slots {
		if r := &x.p.slots[i]; r.present && r.till <= x.t {
			*r = slot{}
			x.p.records--
			x.p.next = 0
			x.wrote = true
		}
	}
}

// create declares the pool new.
func (v *server) create(asked terms, f facts) {
	x := v.begin(f)
	p := &x.p
	if (p.fixed || p.count() > 0) && x.has(declareKept) {
		return
	}
	p.known, p.fixed, p.ttl, p.longest, p.shape = true, true, asked.ttl, asked.longest, asked.shape
	p.word, p.quarantine, p.records = x.standing(incarnation{}, false).noted, 0, p.count()
	x.wrote = true
	x.end(reply{})
	x.tellf(-1, "server %d at its %d: the pool is declared new", v.name, x.t)
}

// acquire grants a slot to a nonce. want is the TTL that is asked for, 0 for the pool's.
func (v *server) acquire(nonce, want int64, asked terms, identity int, f facts) reply {
	x := v.begin(f)
	if answer := x.examine(asked); answer != nil {
		return *answer
	}
	p, first := &x.p, !x.p.fixed
	if p.fixed && want != 0 && want != p.ttl && x.has(oneTTL) || p.fixed && p.shape != asked.shape && x.has(shapePinned) {
		return x.end(reply{word: refused})
	}
	if max(p.longest, p.ttl) > asked.longest && x.has(longestTTL) && x.has(oneTTL) {
		return x.end(reply{word: refused})
	}
	if p.quarantine > x.t && x.has(refusal) {
		return x.end(reply{word: quarantined, wait: p.quarantine - x.t})
	}
	for id := range p.slots {
		if r := &p.slots[id]; r.present && r.held && r.nonce == nonce && (r.till > x.t || !x.has(repeatOpen)) {
			return x.end(reply{word: granted, worker: id, from: r.from, till: r.till, fence: r.fence, made: r.made, ttl: p.ttl, shape: p.shape})
		}
	}
	id, wait := x.nextSlot(identity)
	if id < 0 {
		return x.end(reply{word: exhausted, wait: wait})
	}
	ttl := asked.ttl // each caller's own, if the pool had none
	if first {
		p.fixed, p.ttl, p.shape = true, asked.ttl, asked.shape
	} else if x.has(oneTTL) {
		ttl = p.ttl
	}
	r := &p.slots[id]
	if !r.present {
		p.records++
	}
	p.fence = x.nextFence()
	from, till := x.window(r, ttl)
	*r = slot{present: true, held: true, nonce: nonce, from: from, till: till, fence: p.fence, identity: identity, freed: till, made: x.now}
	p.cursor = id
	x.wrote = true
	return x.end(reply{word: granted, worker: id, from: from, till: till, fence: r.fence, made: r.made, ttl: ttl, shape: p.shape})
}

// window is what is granted of a slot with that record.
func (x *exec) window(last *slot, ttl int64) (from, till int64) {
	from = x.t
	if last.present && x.has(behindLast) {
		from = max(from, last.till)
	}
	if !x.has(refusal) {
		from = max(from, x.p.quarantine)
		return from, from + ttl
	}
	if !x.has(endsInTime) {
		return from, from + ttl
	}
	return from, max(from, x.t+ttl)
}

func (x *exec) nextFence() (fence int64) {
	if x.has(fenceNext) {
		fence = x.p.fence + 1
	}
	if x.has(fenceOfTime) {
		fence = max(fence, x.t*1000)
	}
	return fence
}

// nextSlot is the slot to grant, or -1 and how long to wait for one.
func (x *exec) nextSlot(identity int) (id int, wait int64) {
	p := &x.p
	for i := range p.slots {
		if r := &p.slots[i]; r.present && identity != 0 && r.identity == identity && (!r.held || r.till <= x.t || !x.has(identityEnded)) {
			return i, 0
		}
	}
	for p.next < x.ring {
		p.next++
		if !p.slots[p.next-1].present {
			return p.next - 1, 0
		}
	}
	if !x.has(freeOnly) {
		return (p.cursor + 1) % x.ring, 0
	}
	best := 0
	for i := range p.slots[:x.ring] {
		if p.slots[i].freed < p.slots[best].freed {
			best = i
		}
	}
	at := p.slots[best].freed
	if x.has(coolDown) {
		at += x.cooldown
	}
	if at > x.t {
		return -1, at - x.t
	}
	return best, 0
}

// proof is what a holder tells about its grant.
type proof struct {
	worker, identity              int
	nonce, from, confirmed, fence int64
	shape                         int
}

// renew moves the end of a window, or restores its record.
func (v *server) renew(g proof, asked terms, f facts) reply {
	x := v.begin(f)
	if x.has(renewalNotices) {
		if answer := x.examine(asked); answer != nil {
			return *answer
		}
	}
	p, ttl := &x.p, asked.ttl
	if p.fixed && ttl != p.ttl && x.has(oneTTL) {
		return x.end(reply{word: refused})
	}
	if g.confirmed > x.t+max(p.ttl, ttl)+x.skew {
		g.confirmed = 0
	}
	r, till := &p.slots[g.worker], g.confirmed
	switch {
	case x.mine(r, g) && x.alive(max(till, r.till)):
		till = max(till, r.till)
	case !x.mine(r, g) && x.vanished(r, g) && x.proven(till) && (!p.fixed || p.shape == g.shape):
		x.tellf(g.worker, "server %d restores nonce %d [%d over [%d, %d)", x.v.name, g.nonce, g.from, r.from, r.till)
		if !r.present {
			p.records++
		}
		*r = slot{present: true, held: true, nonce: g.nonce, from: g.from, fence: g.fence, identity: g.identity}
		p.fence = max(p.fence, g.fence)
		if !p.fixed {
			p.ttl = ttl
		}
		p.fixed, p.shape = true, g.shape
	default:
		return x.end(reply{word: lost})
	}
	r.till = max(till, x.t+ttl)
	r.freed = r.till
	x.wrote = true
	return x.end(reply{word: granted, worker: g.worker, from: g.from, till: r.till, fence: g.fence})
}

func (x *exec) mine(r *slot, g proof) bool {
	return r.present && (r.held && r.nonce == g.nonce || !x.has(proofNonce)) && (r.from == g.from || !x.has(proofBegin) || !x.has(proofNonce))
}

// alive reports whether a window that ends then is open by the clock of every server that can have
// granted it.
func (x *exec) alive(till int64) bool {
	if x.p.quarantine > x.t && x.has(aliveSkew) {
		return till > x.t+x.skew || !x.has(neverRevived)
	}
	return till > x.t || !x.has(neverRevived)
}

// proven is the same for a record that is not there.
func (x *exec) proven(till int64) bool {
	bar := x.t
	if x.has(restoreSkew) {
		bar += x.skew
	}
	return till > bar || !x.has(restoreProof)
}

// vanished reports whether the record that is there, if any, is of a time before this grant.
func (x *exec) vanished(r *slot, g proof) bool {
	return !r.present || r.from < g.from && r.till <= g.from || !x.has(restoreOlder)
}

// unsaid is the end of the last stamp of a holder that does not tell.
const unsaid = -1

// release ends a lease: used is the end of its last stamp.
func (v *server) release(g proof, used int64) reply {
	x := v.begin(facts{})
	r := &x.p.slots[g.worker]
	if !r.present || r.nonce != g.nonce || r.from != g.from || r.held && r.till <= x.t {
		return x.end(reply{word: lost})
	}
	if used == unsaid {
		used = x.t + x.lead + x.unit + x.skew
	}
	if !x.has(releaseUsed) {
		used = x.t
	}
	if r.held {
		r.held, r.till, r.freed = false, min(r.till, max(used, r.from)), x.t
	}
	x.wrote = true
	x.tellf(g.worker, "server %d at its %d: nonce %d released until %d", x.v.name, x.t, g.nonce, r.till)
	return x.end(reply{word: granted, till: r.till})
}
