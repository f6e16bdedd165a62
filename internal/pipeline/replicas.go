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
	mu   sync.Mutex
	met  bool    // an attached one was found on the list: addresses are the same there
	list *Listed // nil: there is none, or it was not read yet
	last string  // the addresses that were attached last, as INFO tells them
	// addresses that were attached, since the list was read where there is one, each as often as
	// replicas were attached behind it at once; without a list they have confirmed for the second
	seen  []string
	fresh []string // those of seen that may not be noted in Redis yet, without a list
	most  int      // that were attached at once
	noted int      // as many have confirmed before, as a word says that was noted here
	tools int      // that are attached and confirm, and cannot become master
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
	r.most, r.tools = max(r.most, found.replicas), found.tools
	attached := strings.Fields(found.attached)
	if r.list != nil {
		r.seen = append(r.seen, missing(r.seen, attached)...)
		return
	}
	slices.Sort(attached)
	r.enter(missing(r.seen, slices.Compact(attached)))
}

func (r *replicas) enter(addresses []string) {
	r.seen, r.fresh = append(r.seen, addresses...), append(r.fresh, addresses...)
}

// twins are links, where there is no list, whose address another link has, too. They may be of
// replicas behind one address, or the link of before of one that was parted from its master, which
// ends by repl-timeout and confirms nothing.
func (r *replicas) twins() []string {
	if r.list != nil {
		return nil
	}
	return missing(r.seen, strings.Fields(r.last))
}

// toCount is how many WAIT has to count so that all have a write: it counts tools as well, and they
// stand in for no replica.
func (r *replicas) toCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := r.needLocked()
	if need == 0 {
		return 0
	}
	return need + len(r.twins()) + r.tools
}

// counted takes in that WAIT has counted so many, as [replicas.toCount] says: twins confirm then,
// so they are replicas.
func (r *replicas) counted(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if twins := r.twins(); len(twins) > 0 && n >= r.needLocked()+len(twins)+r.tools {
		r.enter(twins)
	}
}

// missing are those addresses that are not in known as often.
func missing(known, addresses []string) (more []string) {
	known = slices.Clone(known)
	for _, address := range addresses {
		if i := slices.Index(known, address); i >= 0 {
			known = slices.Delete(known, i, i+1)
		} else {
			more = append(more, address)
		}
	}
	return more
}

// anew takes in what is attached in another incarnation: one of those that were seen may be the
// master now. How many of the others have confirmed, the words tell that are noted there.
func (r *replicas) anew(found replication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.seen, r.fresh, r.most, r.noted = found.attached, nil, nil, 0, 0
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

// hold takes in those that Redis holds: all that were seen, in this process or another.
func (r *replicas) hold(addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, missing(r.seen, addresses)...)
	r.fresh = nil
}

// unheld reports whether a replica was seen that may not be noted in Redis yet.
func (r *replicas) unheld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.fresh) > 0
}

// toHold are the addresses to note in Redis. One that stood there is not among them unless it is
// attached: an operator may have said that it is gone.
func (r *replicas) toHold(found replication) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	addresses := strings.Fields(found.attached)
	for _, twin := range missing(r.seen, addresses) {
		i := slices.Index(addresses, twin)
		addresses = slices.Delete(addresses, i, i+1)
	}
	seen := slices.DeleteFunc(slices.Clone(r.seen), func(one string) bool { return !slices.Contains(r.fresh, one) })
	return strings.Join(append(addresses, missing(addresses, seen)...), " ")
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
		return max(len(r.seen), r.noted)
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
