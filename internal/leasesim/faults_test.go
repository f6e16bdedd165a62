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
		standIns:     s.standIn,
		splitAlone:   func() { s.split(false) },
		splitWith:    func() { s.split(true) },
		flush: func() {
			s.tellf(-1, "FLUSHALL on server %d", s.master.name)
			s.master.state = pool{}
			s.strangers(s.servers...)
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
				s.master.create(s.declared(), s.clients[0].facts(s.master, facts{}))
			}
		},
		renames: func() {
			s.master.rename()
			s.master.backlog = s.master.attached() > 0 || s.oneIn(2)
		},
		copies: s.restore,
		moves: func() {
			if s.knows == told {
				s.move()
			}
		},
		forgets: func() {
			if s.knows == plain {
				s.cutOff()
			}
		},
		sentinels: func() {
			if s.knows != listed {
				return
			}
			if s.oneIn(2) {
				s.cutOff()
				return
			}
			if s.oneIn(2) {
				s.forget()
				return
			}
			s.stopSentinels()
		},
		masters: func() {
			if s.knows != clustered {
				return
			}
			switch s.upTo(4) {
			case 0:
				s.forgetReplica()
			case 1:
				s.hidePeers()
			default:
				s.cutOff()
			}
		},
		addresses: func() {
			if s.knows == plain || s.knows == listed {
				s.moveAddress()
			}
		},
		gone: s.sayGone,
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
		if v != s.master && v.up && v.side == s.master.side && v.may() {
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
		if g.master != old || !old.up || !heir.may() {
			return
		}
		old.die()
		s.after(s.upTo(100), func() {
			if g.master == old && heir.up && heir.side == 0 && heir.may() {
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

// move gives the pool to the other part of the cluster.
func (s *sim) move() {
	from, to := s.master, s.other.master
	for _, v := range append(s.servers, s.other.servers...) {
		if v.side != 0 || !v.up || v != v.group.master && v.follows == to && (!v.synced || !v.master) && s.has(moveKept) {
			return
		}
	}
	s.tellf(-1, "the pool moves from server %d to server %d", from.name, to.name)
	to.state = from.state
	if s.has(moveKept) {
		for _, v := range s.other.servers {
			v.state = from.state
		}
	}
	to.wrote()
	from.state = pool{}
	from.wrote()
	s.group, s.other = s.other, s.group
}

func (s *sim) revive(v *server) {
	if v.up {
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

// standIn cuts a replica off, and attaches one that nobody lists. Soon the master dies with that,
// and the first one is promoted as it is.
func (s *sim) standIn() {
	m, r := s.master, s.victim()
	if r == nil || m.side != 0 {
		return
	}
	s.tellf(-1, "replica %d is cut off, and another stands in for it", r.name)
	r.side, m.standIn = 1, true
	s.after(s.between(20, s.ttl), func() {
		m.standIn = false
		if s.master != m || !m.up || r.side != 1 || !r.may() {
			return
		}
		r.side = 0
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
		if s.master == b && b.up && a.up && a.side == b.side && a.synced && a.may() {
			b.master = false
			s.promote(a)
		}
	})
}

// aside has the master follow a server that it cannot read, or of which it reads a part, and makes
// it master again. Another one may be the master meanwhile.
func (s *sim) aside() {
	a, b := s.master, s.victim()
	a.master, a.follows, a.synced, a.link = false, nil, false, s.newID()
	a.dropWaiters()
	s.tellf(-1, "server %d is to follow another", a.name)
	if s.oneIn(3) && s.has(restartDoubted) { // --restarts trust assumes that it does not
		s.tellf(-1, "and reads a part")
		a.state, a.backlog, a.old = a.file.state, false, true
		a.input++
	}
	if b != nil && s.oneIn(2) {
		a.side = 1
		s.promote(b)
	}
	s.after(s.between(3, 2*s.ttl), func() {
		again := a.up && !a.master && a.follows == nil && (s.master == a || s.master == b && a.may())
		a.side = 0
		switch {
		case !again && a.up && s.master != a:
			a.attach(s.master)
		case again:
			if s.master == b {
				b.master = false
			}
			a.follows = a // so that it names its history anew
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
		if s.master == old && heir.up && heir.may() {
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
