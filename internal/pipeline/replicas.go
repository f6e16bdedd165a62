package pipeline

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Listed is what Sentinel or a cluster lists of a master's replicas, away ones included.
type Listed struct {
	Addresses []string // host:port
	// Comparable says that a replica has the same address here and in INFO replication
	Comparable bool
}

// replicas are those of one server, as far as they are known. A replica is known by its address: if
// one is away and another has come, both have to confirm. It is safe for concurrent use.
type replicas struct {
	mu    sync.Mutex
	met   bool     // an attached one was found on the list: addresses are the same there
	list  *Listed  // nil: there is none, or it was not read yet
	last  string   // the addresses that were attached last, as INFO tells them
	seen  []string // addresses that were attached, since the list was read where there is one
	most  int      // different ones that were attached at once, likewise
	twins int      // that are attached at an address which another one has
	tools int      // that are attached, confirm, and cannot become master
	noted int      // as many have confirmed before, as a word says that was noted here
}

// saw takes in what is attached.
func (r *replicas) saw(found replication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tools = found.tools
	if found.attached != r.last {
		r.last = found.attached
		r.add(found)
	}
}

func (r *replicas) add(found replication) {
	different := slices.Compact(slices.Sorted(strings.FieldsSeq(found.attached)))
	r.most, r.twins, r.tools = max(r.most, len(different)), found.replicas-len(different), found.tools
	for _, address := range different {
		if !slices.Contains(r.seen, address) {
			r.seen = append(r.seen, address)
		}
	}
}

// toCount is how many WAIT has to count so that all have a write: a tool that confirms stands in
// for none of them.
func (r *replicas) toCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need := r.needLocked(); need > 0 {
		return need + r.tools
	}
	return 0
}

// haveTwins reports whether two links have one address, where addresses tell replicas apart: it is
// not known then who confirms. One of them may be the old link of a replica that was parted from
// its master, and ends by repl-timeout.
func (r *replicas) haveTwins() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.twins > 0 && (r.list == nil || r.comparable())
}

// anew takes in what is attached in another incarnation: one of those that were seen may be the
// master now. How many of the others have confirmed, the words tell that are noted there.
func (r *replicas) anew(found replication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.seen, r.most, r.noted = found.attached, nil, 0, 0
	r.add(found)
}

// read takes in a list, and what is attached.
func (r *replicas) read(listed Listed, found replication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.last, r.seen, r.most = &listed, found.attached, nil, 0
	r.add(found)
	r.met = r.met || slices.ContainsFunc(r.seen, func(address string) bool { return slices.Contains(listed.Addresses, address) })
}

// hold takes in those that have confirmed before, in this process or another.
func (r *replicas) hold(addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, address := range addresses {
		if !slices.Contains(r.seen, address) {
			r.seen = append(r.seen, address)
		}
	}
}

// note takes in how many have confirmed before, where there is no list.
func (r *replicas) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted = max(r.noted, n)
}

func (r *replicas) listed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list != nil
}

// need is how many have to confirm a write so that all have it.
func (r *replicas) need() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.needLocked()
}

func (r *replicas) needLocked() int {
	if r.list == nil {
		return max(len(r.seen), r.most, r.noted)
	}
	all := len(r.list.Addresses)
	if r.comparable() {
		for _, address := range r.seen {
			if !slices.Contains(r.list.Addresses, address) {
				all++
			}
		}
	}
	return max(all, r.most)
}

// comparable reports whether a replica that is attached can be found on the list: names are not
// compared with numbers.
func (r *replicas) comparable() bool {
	if r.met {
		return true
	}
	isNumber := func(address string) bool {
		_, err := netip.ParseAddrPort(address)
		return err == nil
	}
	for _, list := range [][]string{r.seen, r.list.Addresses} {
		if !r.list.Comparable || slices.ContainsFunc(list, func(address string) bool { return !isNumber(address) }) {
			return false
		}
	}
	return true
}

// confirmedBy reports whether all have what so many, or AckAll, confirm. Without a list only the
// words say so, since a replica that was never attached is not known.
func (r *replicas) confirmedBy(ack int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ack == AckAll || r.list != nil && ack >= r.needLocked()
}
