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
	word            incarnation // the marker
	quarantine, ttl int64
	longest         int64 // TTL that any client allows
	shape           int
	records, next   int
	cursor          int
	fence           int64
	slots           [maxSlots]slot

	tokens [maxTokens / 64]uint64 // those that are claimed
	// those that confirm what no word is noted beside; never changed in place
	places map[int64]int64
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
	confirmed func() bool
	done      func(acked bool)
	over      bool
}

// image is what a file has: an RDB file names the history that it is of.
type image struct {
	state pool
	id    int64
}

// group is a master with its replicas: all servers, or those of one part of a cluster.
type group struct {
	servers []*server
	master  *server // the one that clients are told of
}

// server is a Redis process.
type server struct {
	s      *sim
	group  *group
	name   int
	up     bool
	master bool
	side   int // of a partition
	ahead  int64
	state  pool
	offset int64
	file   image // what it has saved last

	// What INFO shows of it: master_replid, master_replid2, run_id, how often it has read from a
	// master in this run, and whether it has a backlog.
	replid, replid2, runid, input, epoch int64
	backlog                              bool

	follows *server
	link    int64 // changes with each attachment
	synced  bool
	busy    int64 // until when the link delivers what was sent before
	acked   map[int]int64
	tool    bool  // a client reads the stream and confirms it, and is no replica
	standIn int64 // the address of a replica that another server has taken, and confirms under
	gone    bool  // for good
	address int64
	// how often state had been lost when sentinels lost sight of it, and 1; 0 = they list it
	unseen  int64
	waiters []*waiter
}

func newServer(s *sim, g *group, name int) *server {
	v := &server{s: s, group: g, name: name, up: true, runid: s.newID(), replid: s.newID(), address: int64(name) + 1}
	s.met[v.address] = 0
	v.drawClock()
	var save func()
	save = func() {
		if v.up {
			v.file = v.saved()
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

// saved is what an RDB file has that is written now. Without a backlog it names no history.
func (v *server) saved() image {
	if v.backlog || !v.master {
		return image{v.state, v.replid}
	}
	return image{v.state, 0}
}

// attach makes v a replica of m: it is out of step until it has m's state. It reads all of that,
// and gives its backlog up first, or what it has missed. A master without a backlog renames its
// history for it.
func (v *server) attach(m *server) {
	v.master, v.follows, v.synced = false, m, false
	v.link = v.s.newID()
	v.dropWaiters()
	link := v.link
	reads := func() bool { return v.link == link && v.reaches(m) && m.master }
	v.s.after(v.s.upTo(3), func() {
		if !reads() {
			return
		}
		if !m.backlog {
			m.rename()
			m.backlog = true
		}
		missed := (v.replid == m.replid || v.replid == m.replid2) && v.s.oneIn(2)
		if !missed {
			v.backlog = false
		}
		if !missed {
			v.input++
		}
		v.s.after(v.s.between(2, 60), func() {
			if reads() {
				v.inStep(m, missed)
				v.acknowledge(m, link, v.offset)
			}
		})
	})
}

// inStep gives v the state of its master, and what that is called.
func (v *server) inStep(m *server, missed bool) {
	v.state, v.offset, v.synced, v.unseen = m.state, m.offset, true, 0
	v.busy = v.s.now
	if !missed {
		v.replid2 = zeros
	} else if v.replid != m.replid {
		v.replid2 = v.replid
	}
	v.replid, v.backlog = m.replid, true
	v.input++
}

// rename gives the history another name, as when a server without a backlog begins to have one.
func (v *server) rename() {
	v.replid, v.replid2 = v.s.newID(), zeros
	v.s.tellf(-1, "server %d calls its history %d", v.name, v.replid)
}

// attached is how many replicas INFO shows.
func (v *server) attached() (n int) {
	for _, r := range v.group.servers {
		if r.follows == v && r.synced && v.reaches(r) {
			n++
		}
	}
	return n
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
	for _, r := range v.group.servers {
		if r.follows != v || !r.synced || !v.reaches(r) {
			continue
		}
		state, offset, link := v.state, v.offset, r.link
		r.busy = max(r.busy, v.s.now+v.s.linkDelay())
		v.s.after(r.busy-v.s.now, func() {
			if r.link == link && r.synced && v.reaches(r) && v.master {
				r.state, r.offset = state, offset
				r.input++
				r.acknowledge(v, link, offset)
			} else if r.link == link {
				r.synced = false
			}
		})
	}
}

func (v *server) wake() {
	kept := v.waiters[:0]
	for _, w := range v.waiters {
		switch {
		case w.over:
		case w.confirmed():
			w.over = true
			w.done(true)
		default:
			kept = append(kept, w)
		}
	}
	v.waiters = kept
}

// wait has done hear whether what is asked is true in time. A server that dies tells no process.
func (v *server) wait(confirmed func() bool, done func(bool)) {
	if confirmed() {
		done(true)
		return
	}
	w := &waiter{confirmed: confirmed, done: done}
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

// promote makes v the master that clients are told of, and of all on its side. The id before is
// that of the history that it has followed, or has read from a file.
func (s *sim) promote(v *server) {
	if v.gone {
		return
	}
	g := v.group
	if v.follows != nil {
		v.replid2, v.replid = v.replid, s.newID()
	}
	v.master, v.follows, v.synced, v.up = true, nil, false, true
	v.link = s.newID()
	v.acked = map[int]int64{}
	v.dropWaiters()
	g.master = v
	if s.kind == clustered {
		s.epochs++
		v.epoch = s.epochs
	}
	s.tellf(-1, "server %d promoted, replid %d after %d, clock %+d", v.name, v.replid, v.replid2, v.ahead)
	for _, r := range g.servers {
		if r != v && r.side == v.side && r.up && (r.follows != v || !r.synced) {
			r.attach(v)
		}
	}
}

func (v *server) die() {
	v.up = false
	v.dropWaiters()
	v.link = v.s.newID()
	v.s.tellf(-1, "server %d dies", v.name)
}

// disk is what the server finds when it starts again. An append-only file, which may lack its end,
// names no history.
func (v *server) disk() image {
	switch {
	case v.s.durable:
		return image{v.state, 0}
	case v.s.appends:
		return image{v.file.state, 0}
	}
	return v.file
}

// restart begins another run with what a file has. A master that finds the name of a history there
// has it as the one before; a replica goes on under it.
func (v *server) restart(from image) {
	v.up = true
	v.s.wiped++
	v.state, v.file = from.state, from
	v.runid, v.replid, v.link = v.s.newID(), v.s.newID(), v.s.newID()
	v.replid2, v.input, v.backlog = zeros, 0, from.id != 0
	if from.id != 0 && v.master {
		v.replid2 = from.id
	} else if from.id != 0 {
		v.replid = from.id
	}
	v.synced = false
	v.dropWaiters()
	v.drawClock()
	if v.master {
		v.acked = map[int]int64{}
		for _, r := range v.group.servers {
			if r.follows == v && r.up {
				r.attach(v)
			}
		}
	}
}
