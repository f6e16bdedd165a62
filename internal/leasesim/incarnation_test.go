package leasesim

import "maps"

// Whether a server's state continues the state in which a word was noted, decision by decision as
// scripts/lib/incarnation.lua takes them.

// zeros is the id before of a server that has none.
const zeros = 0

// word says by which server a pool was written, and under which durability.
type incarnation struct {
	id, run, input, epoch int64
	// 2 every place confirms, 1 no replica is attached, 0 neither
	level    int
	disk     bool // what is confirmed is on disk
	restored bool // an operator said that the server was started from a copy
	// under a level of 2 the servers of the set: the run at each place, 0 if it is not known; it is
	// never changed in place
	places map[int64]int64
}

func (w *incarnation) equals(o *incarnation) bool {
	return w.id == o.id && w.run == o.run && w.input == o.input && w.epoch == o.epoch && w.level == o.level && w.disk == o.disk &&
		w.restored == o.restored && maps.Equal(w.places, o.places)
}

// facts is what a caller tells a script that the script cannot see.
type facts struct {
	all   bool // every place confirms what it writes
	disk  bool
	told  int64 // the id that the connection began with
	asked int64 // the id of the server that the caller has asked
	own   int64 // the place of that server
	waits map[int64]int64
}

// at is what is found.
type at struct {
	noted  incarnation // what to note now
	same   bool        // nothing that was confirmed is lost
	refuse bool
	asks   bool            // the caller has asked another server
	strict bool            // the caller has to wait for all places
	more   map[int64]int64 // and for these
}

// union returns the places that are noted, waited for or attached, and those for which the caller
// does not wait.
func union(noted, waits map[int64]int64, attached ...int64) (all, more map[int64]int64) {
	all, more = map[int64]int64{}, map[int64]int64{}
	maps.Copy(all, noted)
	for place, run := range waits {
		if run != told && (run != 0 || all[place] == 0) {
			all[place] = run
		}
	}
	for _, place := range attached {
		if _, is := all[place]; !is {
			all[place] = 0
		}
	}
	for place, run := range all {
		if _, is := waits[place]; !is {
			more[place] = run
		}
	}
	return all, more
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
	case f.asked != id:
		return at{refuse: true, asks: true}
	}
	now := incarnation{id: id, run: v.runid, input: v.input, disk: f.disk}
	if x.kind == clustered {
		now.epoch = v.epoch
	}
	switch {
	case f.all && x.kind != lone:
		now.level = 2
	case v.attached() == 0:
		now.level = 1
	}
	own := there && x.owns(was)
	if own && was.level == 2 && now.level < 2 && x.has(coverKept) {
		return at{refuse: true, strict: true}
	}
	if now.level == 2 {
		before := was.places
		if !own || !x.has(placesKept) || !x.has(placesStay) && was.id != id && was.id != v.replid2 {
			before = nil
		}
		var more map[int64]int64
		if now.places, more = union(before, f.waits, v.addresses()...); len(more) > 0 {
			return at{refuse: true, more: more}
		}
	}
	lost := at{noted: now}
	if now.level < 2 {
		now.level = min(now.level, was.level)
	}
	continued := at{noted: now, same: true}
	switch {
	case !there || was.restored:
		return lost
	case !x.has(restartDoubted):
		return continued
	case !x.has(replidMarker):
		return at{noted: lost.noted, same: was.run == v.runid}
	case was.id == id && (was.epoch == now.epoch || !x.has(epochNoted)):
		continued.noted.run, continued.noted.input = was.run, was.input
		return continued
	case x.renamed(was, now), x.named(was), x.restarted(was, now):
		return continued
	}
	return lost
}

// owns reports whether the places of a word are those of this set. A slot that was moved has the
// places of another.
func (x *exec) owns(was incarnation) bool {
	return x.kind != clustered || was.id == x.v.replid || was.id == x.v.replid2
}

// renamed reports whether the same process has only renamed its history.
func (x *exec) renamed(was, now incarnation) bool {
	sameRun := was.run == x.v.runid || !x.has(renamedRun)
	return x.v.replid2 == zeros && sameRun && was.level > 0 && (was.epoch == now.epoch || !x.has(epochNoted)) &&
		(x.v.input == was.input || !x.has(renamedInput))
}

// named reports whether the word names the run that was promoted, or that was to follow another and
// is a master again.
func (x *exec) named(was incarnation) bool {
	switch {
	case x.kind == lone, x.kind == clustered && x.has(noPromotion):
		return false
	case x.v.replid2 != was.id && (x.has(promotionNoted) || x.v.replid2 == zeros):
		return false
	}
	for _, run := range was.places {
		if run == x.v.runid {
			return true
		}
	}
	return !x.has(promotionNamed)
}

// restarted reports whether a server alone has started with all that it had.
func (x *exec) restarted(was, now incarnation) bool {
	return x.kind == lone && x.v.replid2 == zeros && was.run != x.v.runid && x.v.input == 0 && was.level == 1 && was.disk && now.disk
}
