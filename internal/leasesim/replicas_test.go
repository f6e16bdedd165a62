package leasesim

import "slices"

// How a process knows which replicas have to confirm, so that all have what it was confirmed:
// internal/pipeline/replicas.go and facts.go, scripts/store_replicas.lua and internal/redisconn.

// knowing is where processes of a run know the replicas from.
type knowing int

const (
	told      knowing = iota // a list that is always right, as in a cluster
	plain                    // what was attached, and Redis keeps
	listed                   // what sentinels list
	clustered                // what masters of a cluster list
)

// unlisted is the address of the replica of class standIns.
const unlisted = -1

func (s *sim) knowing() knowing {
	ways := []knowing{told}
	for i, c := range []class{forgets, sentinels, masters} {
		if s.faulty(c) {
			ways = append(ways, plain+knowing(i))
		}
	}
	if len(ways) == 2 {
		return ways[1]
	}
	return ways[s.seed%uint64(len(ways))]
}

// kept is what Redis keeps of the replicas of a server that is on no list.
type kept struct {
	id, run   int64
	promoted  bool    // another one has become master since, which is one of the addresses
	addresses []int64 // never changed in place
}

// missing are those addresses that are not in known as often.
func (s *sim) missing(known, addresses []int64) (more []int64) {
	known = slices.Clone(known)
	for _, address := range addresses {
		i := slices.Index(known, address)
		if i >= 0 && s.has(eachBehind) {
			known = slices.Delete(known, i, i+1)
		}
		if i < 0 {
			more = append(more, address)
			if !s.has(eachBehind) {
				known = append(known, address)
			}
		}
	}
	return more
}

// addresses are those of the replicas that INFO shows.
func (v *server) addresses() (all []int64) {
	for _, r := range v.group.servers {
		if r.follows == v && r.synced && v.reaches(r) {
			all = append(all, r.address)
		}
	}
	if v.standIn {
		all = append(all, unlisted)
	}
	return all
}

// own is the address of a server as it knows it.
func (v *server) own() int64 {
	if v.s.faulty(natted) {
		return 0
	}
	return v.address
}

// keepReplicas is scripts/store_replicas.lua.
func (v *server) keepReplicas(now []int64) []int64 {
	s, k := v.s, v.state.replicas
	before := v.replid2
	if v.input == 0 && s.has(restartKeeps) {
		before = zeros
	}
	another := k.id != 0 && k.id != v.replid && k.run != v.runid
	held, own := slices.Clone(k.addresses), false
	if i := slices.Index(held, v.own()); another && i >= 0 {
		held, own = slices.Delete(held, i, i+1), true
	}
	promoted := k.promoted
	if another && k.id == before {
		promoted = !own
	}
	held = append(held, s.missing(held, now)...)
	away := s.missing(now, held)
	if promoted && (len(away) <= 1 || !s.has(oneTakenOff)) {
		promoted = false
		for _, address := range away {
			i := slices.Index(held, address)
			held = slices.Delete(held, i, i+1)
		}
	}
	next := kept{id: v.replid, run: v.runid, promoted: promoted, addresses: held}
	if k.id != next.id || k.run != next.run || k.promoted != promoted || !slices.Equal(k.addresses, held) {
		v.state.replicas = next
		v.wrote()
	}
	return held
}

// knowledge is what a process knows of the replicas of its server.
type knowledge struct {
	asked int64 // when; 0 = never
	id    int64 // the incarnation that was seen last
	list  []int64
	seen  []int64 // since the list was read where there is one
	fresh []int64 // those that Redis may not keep yet
	most  int     // that were attached at once
}

// saw takes in what INFO shows, and reports whether it is another incarnation.
func (k *knowledge) saw(s *sim, id int64, attached []int64) (another bool) {
	if another = k.id != id; another {
		k.seen, k.fresh, k.most = nil, nil, 0
		k.id, k.asked = id, 0
	}
	k.most = max(k.most, len(attached))
	added := s.missing(k.seen, attached)
	k.seen = append(slices.Clip(k.seen), added...)
	k.fresh = append(slices.Clip(k.fresh), added...)
	return another
}

// need is how many have to confirm.
func (k *knowledge) need(s *sim) int {
	if s.knows == plain {
		return max(len(k.seen), k.most)
	}
	all := len(k.list)
	for _, address := range k.seen {
		if !slices.Contains(k.list, address) {
			all++
		}
	}
	return max(all, k.most)
}

// isOld reports whether the process has to ask before its next call.
func (c *client) isOld() bool {
	k := &c.known
	return c.s.knows != told && !c.few && (k.asked == 0 || c.s.now-k.asked > c.s.ttl && c.s.has(askedWhenOld))
}

// learn asks a server and its list, and reports whether both have answered.
func (c *client) learn(v *server) bool {
	s, k := c.s, &c.known
	if !v.up || !v.master {
		return false
	}
	attached := v.addresses()
	if s.knows != plain {
		list, answered := s.listOf(v, attached)
		if !answered {
			return false
		}
		k.list, k.seen, k.most = list, nil, 0
	}
	k.saw(s, v.replid, attached)
	if s.knows == plain && s.has(replicasKept) {
		now := append(slices.Clip(attached), s.missing(attached, slices.DeleteFunc(slices.Clone(k.seen), func(one int64) bool {
			return !slices.Contains(k.fresh, one)
		}))...)
		k.seen = append(slices.Clip(k.seen), s.missing(k.seen, v.keepReplicas(now))...)
	}
	k.fresh = nil
	k.asked = s.now
	return true
}

// confirmed judges a write whose answer shows what was attached when it ran, and whether so many
// have confirmed it.
func (c *client) confirmed(v *server, id int64, attached []int64, want int, acked bool) bool {
	s, k := c.s, &c.known
	another := k.saw(s, id, attached)
	if (another || len(k.fresh) > 0 && s.knows == plain) && !c.learn(v) {
		return false
	}
	if !acked || k.need(s) > want && s.has(comeCounts) {
		return false
	}
	for _, r := range v.group.servers {
		known := slices.Contains(k.seen, r.address) && (s.knows != listed || s.listing(r.address) > 1)
		if known && v == s.master && r.follows == v && r.synced && v.reaches(r) && s.now-r.since > s.ttl {
			r.came = true
		}
	}
	return true
}

// strangers says of all replicas, or of those that are away, that they count as ones that come.
func (s *sim) strangers(who ...*server) {
	for _, v := range who {
		if s.knows == plain && v != s.master {
			v.came, v.since = false, s.now
		}
	}
}

// awayFrom are the servers that are not attached to the master.
func (s *sim) awayFrom() []*server {
	return slices.DeleteFunc(slices.Clone(s.servers), func(r *server) bool {
		return r == s.master || r.follows == s.master && r.synced && s.master.reaches(r)
	})
}

// may reports whether a server can be promoted without breaking what is assumed. In a cluster two
// of three masters have to know it.
func (v *server) may() bool {
	s := v.s
	if s.knows == clustered && !s.elects(v) {
		return false
	}
	return s.knows == told || v.came || !s.has(comeFirst)
}

// sentinel is one of three.
type sentinel struct {
	up     bool
	master *server
	others []int64 // every other server that it knows
}

func (s *sim) startSentinels() {
	for range 3 {
		one := &sentinel{up: true, master: s.master}
		for _, v := range s.servers[1:] {
			one.others = append(one.others, v.address)
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
	m := s.master
	if !one.up || !m.up || m.side != 0 {
		return
	}
	if one.master != m {
		one.others = append(one.others, one.master.address)
		one.others = slices.DeleteFunc(one.others, func(a int64) bool { return a == m.address })
		one.master = m
	}
	for _, address := range m.addresses() {
		if !slices.Contains(one.others, address) {
			one.others = append(one.others, address)
		}
	}
}

// listing is how many sentinels know a server.
func (s *sim) listing(address int64) (n int) {
	for _, one := range s.watchers {
		if one.master.address == address || slices.Contains(one.others, address) {
			n++
		}
	}
	return n
}

func (s *sim) listOf(v *server, attached []int64) (list []int64, answered bool) {
	if s.knows == clustered {
		return s.listedMembers(v)
	}
	return s.listedReplicas(attached)
}

// listedReplicas is redisconn.ListReplicas: the replicas that any of those sentinels lists that
// answer, of which there have to be more than half.
func (s *sim) listedReplicas(attached []int64) (list []int64, answered bool) {
	views := slices.DeleteFunc(slices.Clone(s.watchers), func(one *sentinel) bool { return !one.up })
	if len(views) == 0 || 2*len(views) <= len(s.watchers) && s.has(mostAnswer) {
		return nil, false
	}
	if !s.has(allListed) {
		views = views[s.upTo(int64(len(views))):][:1]
	}
	votes, master := map[int64]int{}, int64(0)
	for _, one := range views {
		named := one.master.address
		votes[named]++
		if !slices.ContainsFunc(attached, func(a int64) bool { return !slices.Contains(one.others, a) }) {
			votes[named] += len(views)
		}
		if votes[named] > votes[master] {
			master = named
		}
	}
	for _, one := range views {
		for _, address := range append(slices.Clone(one.others), one.master.address) {
			if address != master && !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	return list, true
}

// forget has a sentinel be started anew, or reset: it knows what is attached. Not all that answer
// may be so while a replica is away.
func (s *sim) forget() {
	one := s.watchers[s.upTo(int64(len(s.watchers)))]
	for _, other := range s.watchers {
		for _, v := range s.servers {
			if other != one && s.listing(v.address) > 0 && other.master != v && !slices.Contains(other.others, v.address) && s.has(someRemember) {
				return
			}
		}
	}
	one.others, one.up = nil, true
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
		case promoted && s.master == m && r.up && r.may():
			m.die()
			s.promote(r)
			s.after(s.between(100, s.ttl), func() { s.revive(m) })
		case r.up && r != s.master:
			r.attach(s.master)
		}
	})
}

// moveAddress gives a replica another address, under which it attaches again.
func (s *sim) moveAddress() {
	r := s.victim()
	if r == nil || r.side != 0 {
		return
	}
	r.address = 10*(1+s.newID()) + int64(r.name)
	s.tellf(-1, "replica %d has another address: %d", r.name, r.address)
	r.came = false
	r.attach(s.master)
}

// sayGone has an operator say that the replicas which are away are gone.
func (s *sim) sayGone() {
	m := s.master
	if s.knows != plain || !m.up || m.side != 0 {
		return
	}
	s.tellf(-1, "an operator says that replicas are gone which are not attached to server %d", m.name)
	m.state.replicas = kept{id: m.replid, run: m.runid, addresses: m.addresses()}
	if s.has(goneStay) {
		s.strangers(s.awayFrom()...)
	}
	m.wrote()
}
