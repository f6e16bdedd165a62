package leasesim

import (
	"maps"
	"slices"
)

// How a process knows the places that have to confirm: internal/pipeline/places.go and
// internal/redisconn.

// kind is what kind of set a run has.
type kind int

const (
	sentinelSet kind = iota
	clustered
	lone
)

func (s *sim) drawKind() kind {
	kinds := []kind{sentinelSet}
	if s.faulty(clusters | moves | returns | idStays) {
		kinds = append(kinds, clustered)
	}
	if s.faulty(alone) {
		kinds = append(kinds, lone)
	}
	if len(kinds) == 2 {
		return kinds[1]
	}
	return kinds[s.seed%uint64(len(kinds))]
}

// addresses are those of the replicas that INFO shows.
func (v *server) addresses() (all []int64) {
	for _, r := range v.group.servers {
		if r.follows == v && r.synced && v.reaches(r) {
			all = append(all, r.address)
		}
	}
	return all
}

// knowledge is what a process knows of its server.
type knowledge struct {
	asked int64 // when; 0 = never
	id    int64 // the incarnation that was asked
	own   int64
	waits map[int64]int64 // the run at each place, its own included; never changed in place
}

// others are the places that have to confirm.
func (k *knowledge) others() (all []int64) {
	for place := range k.waits {
		if place != k.own {
			all = append(all, place)
		}
	}
	return all
}

// told is the run at a place of which a process knows from a word alone: it waits for the place,
// and notes it in no other word.
const told = -1

// add has a process wait for the places of a word.
func (c *client) add(more map[int64]int64) {
	waits := maps.Clone(c.known.waits)
	for place, run := range more {
		if c.s.has(toldStays) {
			run = told
		}
		waits[place] = run
	}
	c.known.waits = waits
}

// learn asks a server and the list of its set, and reports whether both have answered.
func (c *client) learn(v *server) bool {
	s := c.s
	if !v.up || !v.master && s.has(masterOnly) {
		return false
	}
	waits := map[int64]int64{}
	if !c.few && s.kind != lone {
		list, answered := s.listOf(v)
		if !answered {
			return false
		}
		waits = list
		for _, place := range v.addresses() {
			if _, is := waits[place]; !is {
				waits[place] = 0
			}
		}
	}
	waits[v.address] = v.runid
	c.known = knowledge{asked: s.now, id: v.replid, own: v.address, waits: waits}
	if s.faulty(tokens) && !c.few {
		c.note(v)
	}
	return true
}

// confirmed reports whether a write has been confirmed as it has to be.
func (c *client) confirmed(v *server, offset int64, others []int64) bool {
	switch {
	case c.few, !c.s.has(ackAny):
		return true
	case !c.s.has(byAddress): // WAIT counts whoever has it
		return v.counted(offset) >= len(others)
	}
	missing := 0
	for _, place := range others {
		has := 0
		for _, r := range v.group.servers {
			if r.address == place && r.follows == v && r.synced && v.reaches(r) && v.acked[r.name] >= offset {
				has++
			}
		}
		if has != 1 && v.standIn != place {
			missing++
		}
	}
	if !c.s.has(ackAll) {
		missing--
	}
	return missing <= 0
}

// counted is what WAIT counts: also a tool that confirms, and is no replica.
func (v *server) counted(offset int64) (n int) {
	for _, r := range v.group.servers {
		if r.follows == v && r.synced && v.acked[r.name] >= offset {
			n++
		}
	}
	if v.tool {
		n++
	}
	return n
}

// listOf is what the set lists of a master: the run at each place, 0 where it is not known.
func (s *sim) listOf(v *server) (list map[int64]int64, answered bool) {
	list = map[int64]int64{}
	if s.kind == clustered {
		for _, r := range v.group.servers {
			list[r.address] = 0
			if !s.has(noPromotion) {
				list[r.address] = r.runid
			}
		}
		return list, true
	}
	views := slices.DeleteFunc(slices.Clone(s.watchers), func(one *sentinel) bool { return !one.up })
	if len(views) == 0 || 2*len(views) <= len(s.watchers) && s.has(mostAnswer) {
		return nil, false
	}
	if !s.has(allListed) {
		views = views[s.upTo(int64(len(views))):][:1]
	}
	for _, one := range views {
		for place, run := range one.found {
			if run != 0 || list[place] == 0 {
				list[place] = run
			}
		}
	}
	return list, true
}

// sentinel is one of three. It learns of a replica from the master, and of the run at a place from
// the server there.
type sentinel struct {
	up    bool
	found map[int64]int64
}

func (s *sim) startSentinels() {
	for range 3 {
		one := &sentinel{up: true, found: map[int64]int64{}}
		for _, v := range s.servers {
			one.found[v.address] = v.runid
		}
		s.watchers = append(s.watchers, one)
		var poll func()
		poll = func() {
			s.poll(one)
			s.after(s.between(20, 200), poll)
		}
		s.after(s.upTo(200), poll)
	}
}

func (s *sim) poll(one *sentinel) {
	if !one.up {
		return
	}
	if m := s.master; m.up && m.side == 0 {
		for _, place := range append(m.addresses(), m.address) {
			one.found[place] += 0
		}
	}
	for _, v := range s.servers {
		if _, listed := one.found[v.address]; listed && v.up && v.side == 0 {
			one.found[v.address] = v.runid
		}
	}
}

// known reports whether a replica can be promoted: it was listed at first, or has been attached for
// so long that each process has asked for the places since. Where tokens are claimed, which it
// would lack else, it is in step as well. One that no list has is promoted only while its place is
// noted: the list that is used after a loss is whole.
func (s *sim) known(v *server) bool {
	at, met := s.met[v.address]
	if v.unseen != 0 && s.wiped != v.unseen-1 && s.has(listWhole) {
		return false
	}
	return s.kind != sentinelSet || !s.has(listWhole) || met && s.now-at > s.ttl && (v.synced || !s.faulty(tokens))
}

// forget has a sentinel be started anew, or reset: it knows what is attached. The list that is
// there where a pool has no places yet has to be whole.
func (s *sim) forget() {
	one := s.watchers[s.upTo(int64(len(s.watchers)))]
	if s.has(listWhole) {
		for _, v := range s.servers {
			others := 0
			for _, other := range s.watchers {
				if _, is := other.found[v.address]; is && other != one {
					others++
				}
			}
			if others < 2 {
				return
			}
		}
	}
	one.found, one.up = map[int64]int64{}, true
	s.tellf(-1, "a sentinel begins anew")
	s.poll(one)
}

// stopSentinels has some of them away for a while.
func (s *sim) stopSentinels() {
	for _, one := range s.watchers {
		one.up = !s.oneIn(2)
		s.after(s.between(100, 2*s.ttl), func() { one.up = true })
	}
}

// cutOff cuts a replica off for a while, and it may be promoted as it is.
func (s *sim) cutOff() {
	m, r := s.master, s.victim()
	if r == nil || m.side != 0 || r.side != 0 {
		return
	}
	s.tellf(-1, "replica %d is cut off", r.name)
	r.side = 2 // not that of a master which a split has cut off
	promoted := s.oneIn(2)
	s.after(s.between(20, 4*s.ttl), func() {
		if r.side != 2 {
			return
		}
		r.side = 0
		switch {
		case promoted && s.master == m && r.up:
			m.die()
			s.promote(r)
			s.after(s.between(100, s.ttl), func() { s.revive(m) })
		case r.up && r != s.master:
			r.attach(s.master)
		}
	})
}

// moveAddress gives a replica another address, under which it attaches again. Its old place is
// waited for until an operator says that it is gone.
func (s *sim) moveAddress() {
	r := s.victim()
	if r == nil || r.side != 0 {
		return
	}
	before := s.readdress(r)
	r.attach(s.master)
	s.after(s.upTo(s.ttl), func() { s.sayGone(before) })
}

// readdress gives a replica another address, and returns the one of before.
func (s *sim) readdress(r *server) (before int64) {
	before = r.address
	r.address = 10*(1+s.newID()) + int64(r.name)
	s.tellf(-1, "replica %d has another address: %d after %d", r.name, r.address, before)
	return before
}

// comeUnheard has a replica leave for good, and come under another address when nobody waits for
// it, while all sentinels are away.
func (s *sim) comeUnheard(r *server, then func()) {
	m := s.master
	r.side = 2
	before := s.readdress(r)
	s.after(70, func() { s.sayGone(before) })
	s.after(3*s.ttl, func() {
		if r.side != 2 || s.master != m || !r.up {
			return
		}
		r.side = 0
		r.attach(m)
		for _, each := range s.watchers {
			each.up = false
		}
		wait := s.between(70, 300)
		if s.has(listWhole) {
			wait += s.ttl // it is known by then
		}
		s.after(wait, func() {
			for _, each := range s.watchers {
				each.up = true
			}
			then()
		})
	})
}

// loseSight has a replica cut off that sentinels do not know: each forgets it, or one does and the
// others are away, or none has heard of its new address. Then state may be lost as well. Later the
// replica is promoted as it is.
func (s *sim) loseSight() {
	m, r := s.master, s.victim()
	if s.kind != sentinelSet || r == nil || m.side != 0 || !r.synced {
		return
	}
	cut := func(ways int64) {
		if s.master != m || !m.up || !m.master || !r.up || r.side != 0 || !s.known(r) {
			return
		}
		s.tellf(-1, "replica %d is cut off, out of sight", r.name)
		r.side = 2
		one := s.watchers[s.upTo(3)]
		switch s.upTo(ways) {
		case 0: // its place is noted
			for _, each := range s.watchers {
				delete(each.found, r.address)
			}
			if _, noted := m.disk().state.word.places[r.address]; noted && ways > 1 && s.oneIn(2) {
				m.restart(m.disk())
			}
		case 1:
			delete(one.found, r.address)
			s.lose(m, r)
		default:
			delete(one.found, r.address)
			for _, other := range s.watchers {
				other.up = other == one
			}
			s.lose(m, r)
		}
		wiped := s.wiped
		r.unseen = wiped + 1
		s.after(s.between(2*s.ttl, 5*s.ttl), func() {
			for _, each := range s.watchers {
				each.up = true
			}
			if r.side != 2 {
				return
			}
			r.side = 0
			if s.master != m || !r.up || s.wiped != wiped && s.has(listWhole) {
				r.attach(s.master)
				return
			}
			m.die()
			s.promote(r)
			s.after(s.between(100, s.ttl), func() { s.revive(m) })
		})
	}
	ways := int64(3)
	if s.faulty(tokens) {
		ways = 1 // no state is lost
	}
	if s.oneIn(3) {
		s.comeUnheard(r, func() { cut(1) })
		return
	}
	cut(ways)
}

// lose has a master lose all state. Its list has to be whole then.
func (s *sim) lose(m, r *server) {
	if !s.has(listWhole) {
		for _, each := range s.watchers {
			delete(each.found, r.address)
		}
	}
	m.state = pool{}
	m.wrote()
}

// sayGone has an operator say that a place is gone, to all sentinels and at the master. What
// processes have read of sentinels before they still note, so the operator says it at the master
// once more when that has grown old.
func (s *sim) sayGone(place int64) {
	m := s.master
	if !m.drops(place) {
		return
	}
	for _, one := range s.watchers {
		delete(one.found, place)
	}
	id := m.replid
	same := func() bool { // a server that loses state may have the place again
		return s.master == m && m.replid == id && s.kind == sentinelSet && !s.faulty(everyLoss&^promotions)
	}
	s.after(2*s.ttl, func() {
		if !same() || !m.drops(place) {
			return
		}
		s.after(2*s.ttl, func() {
			_, noted := m.state.word.places[place]
			_, kept := m.state.places[place]
			if same() && (noted || kept) && !slices.Contains(m.addresses(), place) {
				s.check.failf(waited, 0, "the server at %d is gone, and is waited for", place)
			}
		})
	})
}

// drops has a master wait for a place no more, if it is not attached.
func (v *server) drops(place int64) bool {
	if !v.up || v.side != 0 || slices.Contains(v.addresses(), place) || v.address == place {
		return false
	}
	v.s.tellf(-1, "an operator says that the server at %d is gone", place)
	v.state.word.places, v.state.places = maps.Clone(v.state.word.places), maps.Clone(v.state.places)
	delete(v.state.word.places, place)
	delete(v.state.places, place)
	v.wrote()
	return true
}

// leaves has a server that is away be gone, by what an operator says. It stays away, unless nothing
// is assumed.
func (s *sim) leaves() {
	for _, r := range s.servers {
		if r == s.master || r.follows == s.master && r.synced && s.master.reaches(r) {
			continue
		}
		s.sayGone(r.address)
		if s.has(goneStay) {
			r.die()
			r.gone = true
		}
		return
	}
}
