package leasesim

const maxSlots = 16

// slot is a slot's record.
type slot struct {
	present, held            bool
	nonce, from, till, fence int64
	identity                 int   // 0 = none
	freed                    int64 // where its cool-down begins
	made                     int64 // when it was granted, in truth
}

// pool is a pool's state: one hash.
type pool struct {
	known, fixed    bool
	life            int64 // the marker
	quarantine, ttl int64
	longest         int64 // TTL that any client allows
	shape           int
	records, next   int
	cursor          int
	fence           int64
	slots           [maxSlots]slot
}

func (p *pool) count() (n int) {
	for i := range p.slots {
		if p.slots[i].present {
			n++
		}
	}
	return n
}

type waiter struct {
	offset int64
	need   int
	done   func(acked bool)
	over   bool
}

// server is a Redis process.
type server struct {
	s      *sim
	name   int
	up     bool
	master bool
	side   int // of a partition
	ahead  int64
	replid int64
	runid  int64
	state  pool
	file   pool // what is on its disk
	offset int64

	follows *server
	link    int64 // changes with each attachment
	synced  bool
	busy    int64 // until when the link delivers what was sent before
	acked   map[int]int64
	waiters []*waiter
}

func newServer(s *sim, name int) *server {
	v := &server{s: s, name: name, up: true, runid: s.newID()}
	v.drawClock()
	var save func()
	save = func() {
		if v.up {
			v.file = v.state
		}
		s.after(s.between(100, 2*s.ttl), save)
	}
	s.after(s.upTo(s.ttl), save)
	return v
}

// drawClock sets the clock anywhere within S/2 of the truth, with a liking for the edges.
func (v *server) drawClock() {
	half := v.s.skew / 2
	if !v.s.has(clocksAgree) {
		half = v.s.ttl
	}
	switch v.s.upTo(4) {
	case 0:
		v.ahead = half
	case 1:
		v.ahead = -half
	default:
		v.ahead = v.s.between(-half, half)
	}
}

func (v *server) clock() int64 { return v.s.now + v.ahead }

func (v *server) reaches(w *server) bool { return v.up && w.up && v.side == w.side }

// delay is how long replication takes one way.
func (s *sim) linkDelay() int64 {
	if s.now < s.lagUntil {
		return s.upTo(s.ttl)
	}
	return s.upTo(3)
}

// attach makes v a replica of m: it is out of step until it has m's state.
func (v *server) attach(m *server) {
	v.master, v.follows, v.synced = false, m, false
	v.link = v.s.newID()
	v.dropWaiters()
	link := v.link
	v.s.after(v.s.between(2, 60), func() {
		if v.link == link && v.reaches(m) && m.master {
			v.state, v.offset, v.synced = m.state, m.offset, true
			v.busy = v.s.now
			v.acknowledge(m, link, v.offset)
		}
	})
}

func (v *server) acknowledge(m *server, link, offset int64) {
	v.s.after(v.s.upTo(2), func() {
		if v.link == link && v.reaches(m) && m.master {
			m.acked[v.name] = offset
			m.wake()
		}
	})
}

// wrote replicates what a script has written.
func (v *server) wrote() {
	v.offset++
	for _, r := range v.s.servers {
		if r.follows != v || !r.synced || !v.reaches(r) {
			continue
		}
		state, offset, link := v.state, v.offset, r.link
		r.busy = max(r.busy, v.s.now+v.s.linkDelay())
		v.s.after(r.busy-v.s.now, func() {
			if r.link == link && r.synced && v.reaches(r) && v.master {
				r.state, r.offset = state, offset
				r.acknowledge(v, link, offset)
			} else if r.link == link {
				r.synced = false
			}
		})
	}
}

func (v *server) acks(offset int64) (n int) {
	for _, r := range v.s.servers {
		if r.follows == v && r.synced && v.acked[r.name] >= offset {
			n++
		}
	}
	return n
}

func (v *server) wake() {
	kept := v.waiters[:0]
	for _, w := range v.waiters {
		switch {
		case w.over:
		case v.acks(w.offset) >= w.need:
			w.over = true
			w.done(true)
		default:
			kept = append(kept, w)
		}
	}
	v.waiters = kept
}

// wait is WAIT: done hears whether enough replicas have the offset in time. A server that dies
// tells no process.
func (v *server) wait(offset int64, need int, done func(bool)) {
	if need == 0 || v.acks(offset) >= need {
		done(true)
		return
	}
	w := &waiter{offset: offset, need: need, done: done}
	v.waiters = append(v.waiters, w)
	v.s.after(v.s.between(20, 200), func() {
		if !w.over {
			w.over = true
			done(false)
		}
	})
}

func (v *server) dropWaiters() {
	for _, w := range v.waiters {
		w.over = true
	}
	v.waiters = nil
}

// promote makes v the master that clients are told of, and of all on its side.
func (s *sim) promote(v *server) {
	v.master, v.follows, v.synced, v.up = true, nil, false, true
	v.replid, v.link = s.newID(), s.newID()
	v.acked = map[int]int64{}
	v.dropWaiters()
	s.master = v
	s.tellf(-1, "server %d promoted, replid %d, clock %+d", v.name, v.replid, v.ahead)
	s.gather()
}

// gather attaches all that reach the master to it.
func (s *sim) gather() {
	for _, r := range s.servers {
		if r != s.master && r.side == s.master.side && r.up && (r.follows != s.master || !r.synced) {
			r.attach(s.master)
		}
	}
}

func (v *server) die() {
	v.up = false
	v.dropWaiters()
	v.link = v.s.newID()
	v.s.tellf(-1, "server %d dies", v.name)
}

// disk is what the server finds when it starts again.
func (v *server) disk() pool {
	if v.s.durable {
		return v.state
	}
	return v.file
}

// restart begins another life with a state.
func (v *server) restart(state pool) {
	v.up = true
	v.state, v.file = state, state
	v.runid, v.replid, v.link = v.s.newID(), v.s.newID(), v.s.newID()
	v.synced = false
	v.dropWaiters()
	v.drawClock()
	if v.master {
		v.acked = map[int]int64{}
		for _, r := range v.s.servers {
			if r.follows == v && r.up {
				r.attach(v)
			}
		}
	}
}
