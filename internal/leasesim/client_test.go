package leasesim

// client is a process that leases a worker id, stamps and goes.
type client struct {
	s        *sim
	name     int
	identity int
	strict   bool    // a wall clock that ran ahead ends the lease for good
	silent   bool    // it does not tell what it stamped last
	command  bool    // nor does it know, but the clock by which it was stamped
	patience int64   // how often it asks without an answer before it gives up, about
	want     int64   // TTL that it asks for; 0 = the pool's
	fresh    terms   // what it gives a pool that is new
	ttl      int64   // of its lease
	view     *server // whom it talks to
	told     int64   // the id of that server when their connection began
	few      bool    // no replica confirms what it writes
	known    knowledge
	paused   int64 // until when
	slept    int64 // by how much its monotonic clock is behind the truth
	wrong    int64 // by how much its wall clock is
	turn     int64 // changes when what was planned before is void

	nonce  int64
	g      *grant
	anchor int64  // server time minus monotonic time
	origin int64  // of the clock that a command was told: server time minus true time
	latest int64  // of those that it was told
	sent   moment // of the last confirmed request, or earlier if its answer told so
}

// moment is one moment by a client's clocks.
type moment struct{ mono, wall int64 }

func newClient(s *sim, name int) *client {
	c := &client{s: s, name: name, strict: s.oneIn(2), patience: 8, ttl: s.ttl, view: s.master}
	c.fresh = terms{ttl: s.ttl, longest: s.longest(), shape: s.shape()}
	switch {
	case !s.has(alike) && name%2 == 0:
		c.fresh.ttl = s.longest()
	case !s.has(alike):
		c.fresh.longest = s.ttl
	case name%2 == 0:
		c.fresh.ttl = s.longest()
	}
	if !s.has(shapePinned) {
		c.fresh.shape = 0
	}
	c.ttl = c.fresh.ttl
	if !s.faulty(defaultTTLs) {
		c.want = c.ttl
	}
	if name%3 == 0 {
		c.identity = name + 1
	}
	if s.faulty(twins) {
		c.identity = name/2 + 1
	}
	if s.oneIn(2) {
		c.patience = 500
	}
	c.silent = s.oneIn(4)
	c.command = s.faulty(commands) && name%4 == 1
	c.few = s.faulty(fewerAcks) && (name%2 == 0 || s.seed%2 == 0)
	c.setWall()
	c.plan(s.upTo(s.ttl/2), c.start)
	if s.faulty(tokens) {
		s.after(s.upTo(s.ttl), c.claim)
	}
	return c
}

func (c *client) mono() int64 { return c.s.now - c.slept }
func (c *client) wall() int64 { return c.s.now + c.wrong }

// setWall sets the wall clock: wrong by minutes, or by a little.
func (c *client) setWall() {
	if c.s.faulty(clientClocks) {
		off := int64(300_000)
		if c.s.oneIn(2) {
			off = c.s.ttl
		}
		c.wrong = c.s.between(-off, off)
	}
}

// act runs do as soon as the process is not paused, if it was not given up before.
func (c *client) act(do func()) {
	turn := c.turn
	var try func()
	try = func() {
		switch {
		case c.turn != turn:
		case c.s.now < c.paused:
			c.s.after(c.paused-c.s.now+c.s.upTo(2), try)
		default:
			do()
		}
	}
	try()
}

func (c *client) plan(wait int64, do func()) {
	turn := c.turn
	c.s.after(wait, func() {
		if c.turn == turn {
			c.act(do)
		}
	})
}

func (c *client) maybePause(in int64) {
	if c.s.faulty(pauses) && c.s.oneIn(in) {
		c.paused = c.s.now + c.s.between(1, 3*c.ttl)
	}
	if c.s.faulty(suspends) && c.s.oneIn(in) {
		nap := c.s.between(1, 2*c.ttl)
		c.paused = max(c.paused, c.s.now+nap)
		c.slept += nap
	}
}

// messageDelay is how long a message takes one way.
func (c *client) messageDelay() int64 {
	if c.s.faulty(messages) && c.s.oneIn(c.s.rare) {
		return c.s.upTo(c.ttl)
	}
	return c.s.upTo(3)
}

// script is a script with its arguments, but for what its caller tells of the server.
type script func(*server, facts) reply

// ask sends a script to the server of the client's view; hear gets its answer, or that there is
// none, and the moment of sending.
func (c *client) ask(script script, hear func(r reply, sent moment)) {
	s, target, sent, answered, turn := c.s, c.view, moment{c.mono(), c.wall()}, false, c.turn
	answer := func(r reply) {
		if !answered && c.turn == turn {
			answered = true
			c.act(func() {
				if r.word == failed && c.view == target || !r.acked && s.oneIn(3) {
					c.view = s.master
					if !s.faulty(proxy) {
						c.told = 0
					}
				}
				hear(r, sent)
			})
		}
	}
	if s.faulty(writable) && s.oneIn(4) {
		target = s.servers[s.upTo(int64(len(s.servers)))]
	}
	s.after(c.messageDelay(), func() {
		c.settle(target, script, func(r reply) {
			if s.faulty(messages) && s.oneIn(s.rare*2) {
				return
			}
			s.after(c.messageDelay(), func() { answer(r) })
		})
	})
	s.after(s.between(40, c.ttl), func() { answer(reply{word: failed}) })
	if s.faulty(messages) && s.oneIn(s.rare) {
		s.after(s.upTo(3*c.ttl), func() {
			if s.oneIn(2) {
				target = s.master
			}
			c.settle(target, script, func(reply) {})
		})
	}
}

// settle has a server decide. It asks the server and the list first if it has not for long, and
// again if the server is another, or has other places.
func (c *client) settle(target *server, script script, done func(reply)) {
	s := c.s
	if c.known.asked == 0 || s.now-c.known.asked > s.ttl && s.has(askedWhenOld) {
		if !c.learn(target) {
			if target.up {
				done(reply{word: failed})
			}
			return
		}
		s.after(c.messageDelay(), func() { c.settle(target, script, done) })
		return
	}
	if s.now-c.known.asked > s.ttl/2 {
		s.after(2*c.messageDelay(), func() { c.learn(target) })
	}
	c.execute(target, script, func(r reply) {
		switch {
		case r.word != unsettled || !r.asks && !r.strict && r.more == nil:
			done(r)
			return
		case r.more != nil:
			c.add(r.more)
		default:
			c.few = c.few && !r.strict
			c.known.asked = 0
		}
		s.after(c.messageDelay(), func() { c.settle(target, script, done) })
	})
}

// facts are what a client tells of a server.
func (c *client) facts(target *server) facts {
	if c.told == 0 {
		c.told = target.replid
	}
	return facts{
		all: !c.few, disk: c.s.durable || !c.s.has(diskAsked), told: c.told,
		asked: c.known.id, own: c.known.own, waits: c.known.waits,
	}
}

func (c *client) execute(target *server, script script, done func(reply)) {
	if !target.up {
		return
	}
	if !target.master && c.s.has(masterOnly) || target.group != c.s.group {
		done(reply{word: failed})
		return
	}
	before := target.offset
	r := script(target, c.facts(target))
	if c.s.faulty(tokens) && !c.attach(target) {
		done(reply{word: r.word})
		return
	}
	target.meet()
	id, offset, others := target.replid, target.offset, c.known.others()
	if r.word != granted || target.offset == before && !c.s.has(confirmedOffset) {
		r.acked = true // there is nothing to wait for
		done(r)
		return
	}
	target.wait(func() bool { return target.replid == id && c.confirmed(target, offset, others) }, func(acked bool) {
		r.acked = acked
		done(r)
	})
}

// start begins a new life with a new nonce.
func (c *client) start() {
	c.turn++
	if c.s.oneIn(2) {
		c.known = knowledge{} // another process
	}
	c.g, c.nonce = nil, c.s.newID()
	c.acquire()
}

func (c *client) acquire() {
	nonce := c.nonce
	c.ask(func(v *server, f facts) reply {
		r := v.acquire(nonce, c.want, c.fresh, c.identity, f)
		if r.word == granted {
			c.s.tellf(r.worker, "server %d at its %d: acquire by client %d, nonce %d: [%d, %d)", v.name, v.clock(), c.name, nonce, r.from, r.till)
		}
		return r
	}, c.answered)
}

func (c *client) answered(r reply, sent moment) {
	switch {
	case r.word == granted && r.acked:
		c.hold(r, sent)
	case r.word == refused:
		c.plan(c.s.between(100, c.ttl), c.start)
	case r.word == quarantined || r.word == exhausted:
		c.plan(c.s.upTo(3)+min(r.wait, c.s.between(5, 300)), c.acquire)
	case c.s.oneIn(c.patience):
		c.plan(c.s.upTo(50), c.start) // gives up; the slot is wasted
	default:
		c.plan(c.s.upTo(20), c.acquire)
	}
}

func (c *client) hold(r reply, sent moment) {
	c.sent, c.ttl = sent, r.ttl
	if age := c.ttl - (r.till - r.now); age > 0 && c.s.has(deadlineAge) {
		c.sent = moment{sent.mono - age, sent.wall - age}
	}
	c.sent = c.counted(c.sent)
	c.anchor = r.now - c.mono()
	if !c.s.has(anchorReceived) {
		c.anchor = r.now - sent.mono
	}
	c.origin = c.clock() - c.s.now
	c.latest = c.origin
	c.g = &grant{
		id: int(c.s.newID()), client: c.name, worker: r.worker, identity: c.identity, made: r.made, fence: r.fence, shape: r.shape, from: r.from, till: r.till, used: r.from,
	}
	c.s.tellf(r.worker, "client %d: nonce %d confirmed [%d, %d), its clock is at %d", c.name, c.nonce, r.from, r.till, c.clock())
	c.s.check.granted(c.g)
	c.plan(c.s.upTo(20), c.stamp)
	c.plan(c.ttl/3, c.renew)
	if c.s.faulty(churn) {
		c.plan(c.s.between(1, 4*c.ttl), c.release)
	}
	if c.s.faulty(twins) && c.s.oneIn(2) {
		c.plan(c.s.between(1, 2*c.ttl), func() { c.leave("killed") })
	}
}

// counted is from when on a TTL is counted.
func (c *client) counted(sent moment) moment {
	if !c.s.has(deadlineSent) {
		return moment{c.mono(), c.wall()}
	}
	return sent
}

// moveAnchor sets the clock after a renewal: inside of what the reply allows it goes on as it is,
// else it is set to the nearer bound.
func (c *client) moveAnchor(r reply, sent moment) {
	earliest, latest := r.now-c.mono(), r.now-sent.mono
	if !c.s.has(anchorReceived) {
		earliest = latest
	}
	c.anchor = min(max(c.anchor, earliest), latest)
}

func (c *client) clock() int64 {
	if !c.s.has(anchored) {
		return c.wall()
	}
	return c.mono() + c.anchor
}

// ended reports whether the holder's own deadline has come.
func (c *client) ended() bool {
	return c.s.has(localDeadline) && (c.mono() >= c.sent.mono+c.ttl-c.s.margin || c.clock() >= c.g.till) || c.strict && c.ranAhead()
}

// ranAhead reports whether so much time went by on the wall clock that the lease cannot be counted
// on until a renewal was confirmed.
func (c *client) ranAhead() bool {
	return c.s.has(wallDeadline) && c.wall() >= c.sent.wall+c.ttl-c.s.margin
}

// leave ends the lease for this process: it stamps no more.
func (c *client) leave(why string) {
	c.s.tellf(c.g.worker, "client %d: nonce %d ends: %s, used until %d", c.name, c.nonce, why, c.g.used)
	c.g.over = true
	c.turn++
	c.plan(c.s.between(1, 200), c.start)
}

// stamp looks at the deadline, is perhaps paused, reads the clock, and checks the timestamp.
func (c *client) stamp() {
	switch {
	case c.ended():
		c.leave("deadline")
		return
	case c.ranAhead():
		c.plan(c.s.between(1, 40), c.stamp)
		return
	}
	g := c.g
	c.s.check.look(g, c.clock())
	c.maybePause(3 * c.s.awake)
	c.act(func() {
		unit := c.s.unit
		at := c.clock() + c.s.upTo(c.s.lead+1)
		if c.command {
			at = c.s.now + c.origin
		}
		ts := max(at, g.used-1) / unit * unit
		if c.s.has(windowInID) && (ts < g.from || ts+unit > g.till) {
			c.plan(c.s.between(1, 20), c.stamp)
			return
		}
		c.s.check.stamp(g, ts, unit)
		if c.s.oneIn(50) {
			c.setWall()
		}
		c.plan(c.s.between(1, 40), c.stamp)
	})
}

func (c *client) proof() proof {
	return proof{c.g.worker, c.identity, c.nonce, c.g.from, c.g.till, c.g.fence, c.g.shape}
}

func (c *client) renew() {
	p, asked := c.proof(), terms{c.ttl, c.fresh.longest, c.fresh.shape}
	c.maybePause(c.s.awake)
	c.ask(func(v *server, f facts) reply {
		r := v.renew(p, asked, f)
		c.s.tellf(p.worker, "server %d at its %d: renewal by client %d, nonce %d: %v until %d", v.name, v.clock(), c.name, p.nonce, r.word == granted, r.till)
		return r
	}, c.renewed)
}

// renewed does not look at the old deadline first: a process that was paused may read the answer
// before its timer fires.
func (c *client) renewed(r reply, sent moment) {
	switch {
	case r.word == lost || r.word == refused:
		c.s.check.refused(c.g, r.now)
		c.leave("renewal refused")
		return
	case r.word == granted && r.acked:
		c.sent = c.counted(sent)
		c.moveAnchor(r, sent)
		c.origin = c.clock() - c.s.now
		c.latest = max(c.latest, c.origin)
		c.g.till = max(c.g.till, r.till)
		c.s.tellf(c.g.worker, "client %d: nonce %d confirmed until %d", c.name, c.nonce, c.g.till)
		c.s.check.extended(c.g)
	case c.ended():
		c.leave("deadline")
		return
	}
	c.plan(c.s.between(c.ttl/12, c.ttl/3), c.renew)
}

// release ends the lease in this process first, and then tells.
func (c *client) release() {
	p, used := c.proof(), c.g.used
	switch {
	case c.command && c.s.has(clockUsed):
		used = c.s.now + c.latest + c.s.unit
	case c.command:
		used = c.s.now + c.origin
	case c.silent:
		used = unsaid
	}
	c.g.over = true
	c.turn++
	c.ask(func(v *server, _ facts) reply { return v.release(p, used) }, func(reply, moment) {})
	c.plan(c.s.between(1, 200), c.start)
}
