package leasesim

// schedule plans the faults of a run until its end.
func (s *sim) schedule(end int64) {
	plan := map[class]func(){
		lag:           func() { s.lagUntil = s.now + s.between(50, s.ttl) },
		failover:      func() { s.failover(s.victim(), false) },
		staleFailover: func() { s.failover(s.victim(), true) },
		twice: func() {
			s.failover(s.victim(), s.oneIn(3) && s.faulty(staleFailover))
			s.after(s.upTo(s.ttl/2), func() { s.failover(s.victim(), s.oneIn(3) && s.faulty(staleFailover)) })
		},
		thereAndBack: s.thereAndBack,
		aside:        s.aside,
		tools:        s.tool,
		splitAlone:   func() { s.split(false) },
		splitWith:    func() { s.split(true) },
		flush: func() {
			s.tellf(-1, "FLUSHALL on server %d", s.master.name)
			s.master.state = pool{}
			s.wiped++
			s.master.wrote()
		},
		deleteRecord: func() {
			id := s.upTo(int64(s.ring))
			s.tellf(-1, "record %d deleted on server %d", id, s.master.name)
			s.master.state.slots[id] = slot{}
			if !s.has(handsOff) {
				s.master.state.records = s.master.state.count()
			}
			s.master.wrote()
		},
		restartEmpty: func() {
			s.tellf(-1, "server %d restarts empty", s.master.name)
			s.master.restart(image{})
		},
		restartOld: func() {
			s.tellf(-1, "server %d restarts from an old file", s.master.name)
			s.master.restart(s.master.disk())
		},
		restartWhole: func() {
			s.tellf(-1, "server %d restarts with all that it had", s.master.name)
			whole := s.master.saved()
			if s.appends || s.durable {
				whole.id = 0
			}
			s.master.restart(whole)
		},
		declare: func() {
			if s.master.state.fixed || !s.has(declaredUnused) {
				s.clients[0].few = false
				s.clients[0].learn(s.master)
				s.master.create(s.declared(), s.clients[0].facts(s.master))
			}
		},
		renames: func() {
			s.master.rename()
			s.master.backlog = s.master.attached() > 0 || s.oneIn(2)
		},
		copies: s.restore,
		moves: func() {
			if s.kind == clustered {
				s.move()
			}
		},
		cuts: s.cutOff,
		sentinels: func() {
			if s.kind != sentinelSet {
				return
			}
			if s.oneIn(2) {
				s.forget()
				return
			}
			s.stopSentinels()
		},
		addresses: func() {
			if s.kind == sentinelSet {
				s.moveAddress()
			}
		},
		gone:      s.leaves,
		idStays:   s.keepID,
		returns:   s.comeBack,
		snapshots: s.snapshot,
		sights:    s.loseSight,
		chains:    s.chain,
		serverClocks: func() {
			v := s.servers[s.upTo(int64(len(s.servers)))]
			v.drawClock()
			s.tellf(-1, "clock of server %d: %+d", v.name, v.ahead)
		},
	}
	var kinds []func()
	for bit := class(1); bit < classes; bit <<= 1 {
		if do := plan[bit]; do != nil && s.faulty(bit) {
			kinds = append(kinds, func() {
				if !s.gentle || s.master.up && s.master.attached() == len(s.servers)-1 {
					s.made++
					do()
				}
			})
		}
	}
	if len(kinds) == 0 {
		return
	}
	at, gap := s.between(s.ttl, 4*s.ttl), s.between(s.ttl, 5*s.ttl)
	for s.now+at < end {
		kind := kinds[s.upTo(int64(len(kinds)))]
		s.after(at, kind)
		switch {
		case s.gentle:
			at += s.between(4*s.ttl, 6*s.ttl)
		case s.bursts && !s.oneIn(3):
			at += s.between(0, s.ttl/8)
		case s.bursts:
			at += s.between(2*s.ttl, 5*s.ttl)
		case s.oneIn(3):
			at += s.between(0, s.ttl/2)
		default:
			at += s.between(s.ttl/2, gap)
		}
	}
}

// victim is a replica that can be promoted, or nil.
func (s *sim) victim() *server {
	var can []*server
	for _, v := range s.servers {
		if v != s.master && v.up && v.side == s.master.side && s.known(v) {
			can = append(can, v)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return can[s.upTo(int64(len(can)))]
}

// failover kills the master and promotes heir, which has lost what is not in its file if it is
// stale.
func (s *sim) failover(heir *server, stale bool) {
	if heir == nil {
		return
	}
	g, old := heir.group, s.master
	if stale {
		s.tellf(-1, "server %d restarts from an old file", heir.name)
		heir.restart(heir.disk())
		heir.attach(old)
	}
	ends := func() {
		if g.master != old || !old.up {
			return
		}
		old.die()
		s.after(s.upTo(100), func() {
			if g.master == old && heir.up && heir.side == 0 && s.known(heir) {
				s.promote(heir)
			}
		})
		s.after(s.between(100, s.ttl), func() { s.revive(old) })
	}
	if stale {
		s.after(s.upTo(60), ends)
	} else {
		ends()
	}
}

// restore starts the master from a copy that is older than its file, and says so before anybody
// asks it. Its replicas follow.
func (s *sim) restore() {
	s.tellf(-1, "server %d starts from a copy", s.master.name)
	from := s.master.file
	if s.appends || s.durable {
		from.id = 0
	}
	s.master.restart(from)
	if s.has(restoredTold) {
		s.master.state.word.restored = true
		s.master.wrote()
	}
}

// move gives the pool to the other master of the cluster, with the word that it has. That one takes
// the next epoch, unless it has the largest.
func (s *sim) move() {
	from, to := s.master, s.other.master
	if from.side != 0 || to.side != 0 || !from.up || !to.up {
		return
	}
	s.tellf(-1, "the pool moves from server %d to server %d", from.name, to.name)
	if to.epoch != s.epochs {
		s.epochs++
		to.epoch = s.epochs
	}
	to.state = from.state
	to.wrote()
	from.state = pool{}
	from.wrote()
	s.group, s.other = s.other, s.group
}

// comeBack moves the pool away and, after the other master was used and has started from its file
// of before, back. A replica may be promoted then.
func (s *sim) comeBack() {
	from := s.master
	if s.kind == clustered {
		s.move()
	}
	to := s.master
	if to == from {
		return
	}
	saved := to.saved()
	s.after(s.between(s.ttl, 4*s.ttl), func() {
		if s.master != to || !to.up || to.side != 0 {
			return
		}
		s.tellf(-1, "server %d starts from its file of before", to.name)
		if s.durable {
			saved = to.disk()
		}
		to.restart(saved)
		s.move()
		if s.master != to && s.oneIn(2) {
			s.after(s.between(10, 50), func() { s.failover(s.victim(), false) })
		}
	})
}

// keepID has a replica start from an older file while its master is gone, and become master under
// the id in that file.
func (s *sim) keepID() {
	m, r := s.master, s.victim()
	if s.kind != clustered || r == nil {
		return
	}
	m.die()
	s.tellf(-1, "replica %d starts from an older file, and becomes master under its id", r.name)
	r.restart(r.disk())
	r.follows = nil // it is promoted, and does not change its id
	s.promote(r)
	s.after(s.between(100, s.ttl), func() { s.revive(m) })
}

// snapshot takes one of the master, and resumes it later if it is a master still.
func (s *sim) snapshot() {
	m := s.master
	state, offset, id, before, run, input, epoch := m.state, m.offset, m.replid, m.replid2, m.runid, m.input, m.epoch
	s.after(s.between(20, 3*s.ttl), func() {
		if s.master != m || !m.up || m.side != 0 {
			return
		}
		s.tellf(-1, "server %d is resumed from a snapshot", m.name)
		m.state, m.offset, m.replid, m.replid2, m.runid, m.input, m.epoch = state, offset, id, before, run, input, epoch
		m.dropWaiters()
		s.wiped++
		m.acked = map[int]int64{}
		if s.has(restoredTold) {
			m.state.word.restored = true
		}
		for _, r := range m.group.servers {
			if r.follows == m && r.up {
				r.attach(m)
			}
		}
		m.wrote()
	})
}

// chain has a replica copy one that lags, and follows another replica, and be promoted. Nobody does
// that, unless nothing is assumed.
func (s *sim) chain() {
	m, r := s.master, s.victim()
	if s.has(followMaster) || r == nil || !r.synced || m.side != 0 {
		return
	}
	s.tellf(-1, "replica %d copies one that lags, and is promoted", r.name)
	r.state = r.file.state
	m.die()
	s.promote(r)
	s.after(s.between(100, s.ttl), func() { s.revive(m) })
}

func (s *sim) revive(v *server) {
	if v.up || v.gone {
		return
	}
	s.tellf(-1, "server %d is back", v.name)
	was := v.master
	m := v.group.master
	v.master = v == m && was
	v.restart(v.disk())
	if v != m {
		v.attach(m)
	}
}

// tool cuts a replica off while a client confirms the stream. Soon the master dies, and the replica
// is promoted as it is.
func (s *sim) tool() {
	m, r := s.master, s.victim()
	if r == nil || m.side != 0 {
		return
	}
	s.tellf(-1, "replica %d is cut off, and a tool confirms", r.name)
	r.side, m.tool = 1, true
	if !s.has(ownPlace) {
		m.standIn = r.address
	}
	s.after(s.between(20, s.ttl), func() {
		m.tool, m.standIn = false, 0
		if r.side != 1 {
			return
		}
		r.side = 0
		if s.master != m || !m.up {
			r.attach(s.master)
			return
		}
		m.die()
		s.promote(r)
		s.after(s.between(100, s.ttl), func() { s.revive(m) })
	})
}

// thereAndBack makes a replica the master and, soon, the old one again. The replica may be stale.
func (s *sim) thereAndBack() {
	a, b := s.master, s.victim()
	if b == nil {
		return
	}
	if s.oneIn(2) && s.faulty(staleFailover) {
		s.tellf(-1, "server %d restarts from an old file", b.name)
		b.restart(b.disk())
	}
	a.master = false
	s.promote(b)
	wait := s.between(3, 90)
	if s.oneIn(2) {
		wait = s.between(3, 3*s.ttl)
	}
	s.after(wait, func() {
		if s.master == b && b.up && a.up && a.side == b.side && a.synced && s.known(a) {
			b.master = false
			s.promote(a)
		}
	})
}

// aside has the master follow a server that it cannot read, or of which it reads a part, and makes
// it master again. Another one may be the master meanwhile.
func (s *sim) aside() {
	a, b := s.master, s.victim()
	// It follows nobody here; whoever makes it master has it name its history anew.
	a.master, a.follows, a.synced, a.link = false, a, false, s.newID()
	a.dropWaiters()
	s.tellf(-1, "server %d is to follow another", a.name)
	if s.oneIn(3) && s.has(restartDoubted) { // --restarts trust assumes that it does not
		s.tellf(-1, "and reads a part")
		if a.input++; s.oneIn(2) { // Redis has kept all, or has nothing
			a.state, a.backlog = pool{}, false
			s.wiped++
		}
	}
	if b != nil && s.oneIn(2) {
		a.side = 1
		s.promote(b)
	}
	s.after(s.between(3, 2*s.ttl), func() {
		again := a.up && !a.master && a.follows == a
		a.side = 0
		switch {
		case !again && a.up && s.master != a:
			a.attach(s.master)
		case again:
			s.master.master = false
			s.promote(a)
		}
	})
}

// split cuts the master off, alone or with a replica, while it serves on, and promotes another.
// Later the partition heals.
func (s *sim) split(with bool) {
	old, heir := s.master, s.victim()
	if heir == nil || old.side != 0 {
		return
	}
	old.side = 1
	s.tellf(-1, "server %d is cut off and serves on", old.name)
	if with {
		for _, v := range s.servers {
			if v != old && v != heir {
				v.side = 1
				s.tellf(-1, "together with server %d", v.name)
				break
			}
		}
	}
	s.after(s.upTo(150), func() {
		if s.master == old && heir.up && s.known(heir) {
			s.promote(heir)
		}
	})
	s.after(s.between(200, 3*s.ttl), func() {
		s.tellf(-1, "the partition heals")
		for _, v := range s.servers {
			v.side = 0
			if v != s.master && v.up {
				v.attach(s.master)
			}
		}
	})
}
