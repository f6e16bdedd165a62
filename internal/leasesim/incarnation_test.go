package leasesim

// Whether a server's state continues the state in which a word was noted, decision by decision as
// scripts/lib/incarnation.lua takes them.

// zeros is the id before of a server that has none.
const zeros = 0

// word says in which incarnation a pool was written, and under which cover.
type incarnation struct {
	id, run, input int64
	// 2 every server that can become master confirms, 1 no replica is attached, 0 neither
	level    int
	disk     bool // what is confirmed is on disk
	restored bool // an operator said that the server was started from a copy
}

// facts is what a caller tells a script that the script cannot see.
type facts struct {
	all   bool // every replica confirms what it writes
	level int  // of its cover
	disk  bool
	told  int64 // the id that the connection began with
	asked int64 // the id for which it has asked what follows
	peer  int64 // the noted id, if another master of the cluster lives under it
}

// at is what is found.
type at struct {
	noted  incarnation // what to note now
	same   bool        // nothing that was confirmed is lost
	asks   int64       // the caller has to ask others first, about this id
	strict bool        // the caller has to confirm by every replica, and did not
	refuse bool
}

// levelNow is the level under which a caller confirms what it does now.
func (v *server) levelNow(f facts) int {
	if f.all || v.attached() == 0 {
		return f.level
	}
	return 0
}

// standing judges a pool's word.
func (x *exec) standing(was incarnation, there bool) at {
	v, f := x.v, x.facts
	id := v.replid
	switch {
	case x.faulty(noID) && x.has(usableID):
		return at{refuse: true}
	case x.faulty(noID):
		id = 1 // for ever
	case !x.has(askedEachTime):
		id = f.told
	}
	level := v.levelNow(f)
	lost := at{noted: incarnation{id: id, run: v.runid, input: v.input, level: level, disk: f.disk}}
	least := incarnation{id: id, run: v.runid, input: v.input, level: level, disk: f.disk}
	if level < 2 {
		least.level = min(was.level, level)
	}
	continued := at{noted: least, same: true}
	strict := was.level == 2 && level < 2 && x.has(coverKept)
	if strict {
		continued = at{strict: true, refuse: true}
	}
	switch {
	case !there || was.restored:
		return lost
	case !x.has(restartDoubted):
		return continued
	case !x.has(replidMarker):
		return at{noted: lost.noted, same: was.run == v.runid}
	case was.id == id && strict:
		return continued
	case was.id == id:
		least.run, least.input = was.run, was.input
		return at{noted: least, same: true}
	case v.replid2 == was.id && x.untouched(was):
		return continued
	case v.replid2 != zeros && (v.replid2 == was.id || !x.has(promotionNoted)):
		if x.followed() && (was.level == 2 || !x.has(promotionCovered)) {
			return continued
		}
		return lost
	case v.replid2 != zeros && !x.faulty(moves):
		return lost
	case v.replid2 == zeros && x.renamed(was):
		return continued
	}
	return x.askedFor(was, id, lost, continued)
}

// followed reports whether a server that was promoted has followed its master in this run.
func (x *exec) followed() bool {
	return (x.v.input > 0 || !x.has(promotionRead)) && (x.v.backlog || !x.has(promotionWhole))
}

// untouched reports whether this is a former master that has what it had, and is one again.
func (x *exec) untouched(was incarnation) bool {
	return was.run == x.v.runid && (was.input == x.v.input || !x.has(asideInput)) && (was.level > 0 || !x.has(asideCovered))
}

// renamed reports whether a server that has no id before has only renamed its history.
func (x *exec) renamed(was incarnation) bool {
	sameRun := was.run == x.v.runid || !x.has(renamedRun)
	return sameRun && (x.v.input == was.input || !x.has(renamedInput))
}

// askedFor decides what only others know: whether a restarted server keeps all on disk, and whether
// the pool came from another master of the cluster.
func (x *exec) askedFor(was incarnation, id int64, lost, continued at) at {
	v := x.v
	restarted := v.replid2 == zeros && was.run != v.runid && v.input == 0 && was.level > 0 && was.disk
	if !restarted && !x.faulty(moves) {
		return lost
	}
	if x.facts.asked != id {
		return at{refuse: true, asks: was.id}
	}
	moved := x.facts.peer == was.id || !x.has(movedFromPeer) && x.faulty(moves)
	if restarted && x.facts.disk || moved {
		return continued
	}
	return lost
}
