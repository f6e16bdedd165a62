package leasesim

import "slices"

// What the nodes of a cluster know of the replicas of a master, and how that is asked for:
// internal/pipeline/members.go.

// members is what one node knows: a server of the set, or one of two other masters.
type members struct {
	away   bool            // no client reaches it
	others []int64         // servers of the set, but for itself
	told   map[int64]int64 // until when one that it was told to forget stays forgotten
}

// forget is CLUSTER FORGET: for a while the node learns from no other one of that server.
func (m *members) forget(address, until int64) {
	m.others = slices.DeleteFunc(m.others, func(one int64) bool { return one == address })
	m.told[address] = until
}

func (m *members) knows(address int64) bool { return slices.Contains(m.others, address) }

// joins has the cluster know that a server follows a master now, if any node knows the server.
func (s *sim) joins(v *server) {
	if len(s.peers) > 0 && slices.ContainsFunc(s.nodes(), func(one *members) bool { return one.knows(v.address) }) {
		v.joined = true
	}
}

// nodes are what the servers of the set know, and the other masters.
func (s *sim) nodes() (all []*members) {
	for _, v := range s.servers {
		all = append(all, &v.members)
	}
	return append(all, s.peers...)
}

func (s *sim) startMembers() {
	s.peers = []*members{{}, {}}
	for i, one := range s.nodes() {
		one.told = map[int64]int64{}
		for j, v := range s.servers {
			v.joined = true
			if i != j {
				one.others = append(one.others, v.address)
			}
		}
	}
	var gossip func()
	gossip = func() {
		s.gossip()
		s.after(s.between(20, 200), gossip)
	}
	s.after(s.upTo(200), gossip)
}

// gossip has the nodes that are connected tell each other which servers there are.
func (s *sim) gossip() {
	var up []*members
	for _, v := range s.servers {
		if v.up && v.side == 0 {
			up = append(up, &v.members)
		}
	}
	up = append(up, s.peers...)
	for _, to := range up {
		for _, from := range up {
			for _, address := range from.others {
				own := slices.ContainsFunc(s.servers, func(v *server) bool { return to == &v.members && v.address == address })
				if !own && !to.knows(address) && to.told[address] <= s.now {
					to.others = append(to.others, address)
				}
			}
		}
	}
}

// elects reports whether two of three masters know a server: its own is dead, or is asked as well.
func (s *sim) elects(v *server) bool {
	return !slices.ContainsFunc(s.peers, func(one *members) bool { return !one.knows(v.address) })
}

// replaced has a former master be none of the replicas until it is back. A server that is away is
// listed as a replica of that one.
func (s *sim) replaced(former, heir *server) {
	if s.knows != clustered {
		return
	}
	for _, r := range s.servers {
		if r == former {
			r.joined, r.came = false, false
		} else if !s.has(beforeKept) && (!r.up || r.side != heir.side) {
			r.joined = false
		}
	}
}

// listedMembers are the replicas of a master that it or any of those other masters lists which
// answer: more than half have to.
func (s *sim) listedMembers(v *server) (list []int64, answered bool) {
	views := []*members{&v.members}
	for _, one := range s.peers {
		if !one.away && s.has(mastersAsked) {
			views = append(views, one)
		}
	}
	if len(views) == 1 && s.has(mastersAsked) && s.has(mostMasters) {
		return nil, false
	}
	for _, r := range s.servers {
		if r != v && r.joined && slices.ContainsFunc(views, func(one *members) bool { return one.knows(r.address) }) {
			list = append(list, r.address)
		}
	}
	return list, true
}

// forgetReplica tells nodes to forget a replica that is away: all of them, or one, or, where
// nothing is assumed, some.
func (s *sim) forgetReplica() {
	away := s.awayFrom()
	if len(away) == 0 {
		return
	}
	r, until := away[s.upTo(int64(len(away)))], s.now+s.between(s.ttl, 3*s.ttl)
	nodes := s.nodes()
	know := func(one *members) bool { return one == &r.members || one.knows(r.address) }
	everyone := s.oneIn(3)
	if !everyone && s.has(othersKnow) && slices.ContainsFunc(nodes, func(one *members) bool { return !know(one) }) {
		return
	}
	s.tellf(-1, "nodes are told to forget replica %d, all of them: %v", r.name, everyone)
	only := nodes[s.upTo(int64(len(nodes)))]
	if s.oneIn(2) {
		only = &s.master.members
	}
	for _, one := range nodes {
		switch {
		case one == &r.members:
		case everyone, one == only, !s.has(othersKnow) && s.oneIn(2):
			one.forget(r.address, until)
		}
	}
	if everyone { // later it is introduced again
		s.after(until-s.now+s.upTo(s.ttl), func() { s.introduce(r) })
	}
}

// introduce is CLUSTER MEET, once a server can be reached.
func (s *sim) introduce(r *server) {
	if !r.up || r.side != 0 {
		s.after(s.between(20, s.ttl), func() { s.introduce(r) })
		return
	}
	for _, one := range s.peers {
		if !one.knows(r.address) {
			one.others = append(one.others, r.address)
		}
	}
	r.joined, r.came, r.since = r.follows == s.master, false, s.now
}

// hidePeers has clients not reach some of the other masters for a while.
func (s *sim) hidePeers() {
	for _, one := range s.peers {
		one.away = !s.oneIn(3)
		s.after(s.between(100, 2*s.ttl), func() { one.away = false })
	}
}
