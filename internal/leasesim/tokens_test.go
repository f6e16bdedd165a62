package leasesim

import "maps"

// Tokens, of which each is claimed by one client at most while Redis loses nothing. Their scripts
// note no word and read none, so a process alone has to know which places confirm: those that are
// listed, attached at a call, or noted by the process that knew them before (internal/pipeline).

const maxTokens = 256

// claim claims a token, and plans the next claim. A third of the clients make none for long.
func (c *client) claim() {
	s := c.s
	token := int(s.now/100) % maxTokens
	if s.oneIn(2) {
		token = int(s.upTo(maxTokens))
	}
	c.ask(func(v *server, f facts) reply {
		r := v.claim(token)
		s.tellf(-1, "server %d: token %d is claimed by client %d, which waits for %v: %v", v.name, token, c.name, f.waits, r.word == granted)
		return r
	}, func(r reply, _ moment) {
		if r.word != granted || !r.acked {
			return
		}
		s.tellf(-1, "client %d has claimed token %d", c.name, token)
		if other := s.check.tokens[token]; other != nil {
			s.check.failf(claimedTwice, 0, "token %d by client %d, and by client %d", token, other.name, c.name)
		}
		s.check.tokens[token] = c
	})
	wait := s.between(20, s.ttl)
	if c.name%3 == 0 {
		wait = s.between(2*s.ttl, 5*s.ttl)
	}
	s.after(wait, c.claim)
}

func (v *server) claim(token int) reply {
	x := v.begin(facts{})
	bit := uint64(1) << (token % 64)
	if x.p.tokens[token/64]&bit != 0 {
		return x.end(reply{word: refused})
	}
	x.p.tokens[token/64] |= bit
	x.wrote = true
	return x.end(reply{word: granted})
}

// note has a server note the places that have to confirm, and has a client wait for those that it
// has noted before.
func (c *client) note(v *server) {
	all, more := union(v.state.places, c.known.waits)
	if !maps.Equal(all, v.state.places) {
		v.state.places = all
		v.wrote()
	}
	c.add(more)
}

// attach has a client wait for the replicas that are attached at its call, and notes them. Before,
// it asks again if this is another server than it has asked, and reports whether that was answered.
func (c *client) attach(v *server) bool {
	if c.known.id != v.replid && !c.learn(v) {
		return false
	}
	more := map[int64]int64{}
	for _, place := range v.addresses() {
		if run, is := c.known.waits[place]; !is || run == told {
			more[place] = 0
		}
	}
	if len(more) > 0 && c.s.has(attachedNoted) {
		waits := maps.Clone(c.known.waits)
		maps.Copy(waits, more)
		c.known.waits = waits
		c.note(v)
	}
	return true
}

// meet notes since when each replica is attached at calls, until that has been so for long.
func (v *server) meet() {
	s, attached := v.s, map[int64]bool{v.address: true}
	for _, place := range v.addresses() {
		attached[place] = true
		if _, is := s.met[place]; !is {
			s.met[place] = s.now
		}
	}
	for place, at := range s.met {
		if s.now-at <= s.ttl && !attached[place] {
			delete(s.met, place)
		}
	}
}
