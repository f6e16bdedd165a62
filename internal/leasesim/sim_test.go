package leasesim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
)

// All times are in milliseconds of true time unless a name says otherwise.

// config says what one run simulates.
type config struct {
	seed    uint64
	faults  class
	removed ruleSet
	expect  breach // the only breach that ends the run; "" = any
	ring    int    // worker ids of the pool
	length  int64  // of the run
	bursts  bool   // faults come close together, and then none for a while
	durable bool   // whatever a server has is on its disk at once, as with appendfsync always
	gentle  bool   // faults are far apart, and servers are in step then
	trace   int    // the worker whose history is told, or -1
}

type event struct {
	at  int64
	seq int64
	do  func()
}

type queue []event

func (q *queue) Len() int { return len(*q) }
func (q *queue) Less(i, j int) bool {
	a, b := &(*q)[i], &(*q)[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (q *queue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *queue) Push(x any)    { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return last
}

// sim is one run.
type sim struct {
	config
	rnd    *rand.Rand
	now    int64
	seq    int64
	steps  int64
	events queue

	ttl, skew, margin, lead int64
	cooldown                int64
	rare                    int64 // one in how many messages is late, or lost, or executed twice
	// one in how many renewals, or three times as many stamps, meets a pause
	awake   int64
	unit    int64  // how long a timestamp of an id stands for
	appends bool   // servers write append-only files, else RDB files
	*group         // the servers that have the pool
	other   *group // of the same cluster, or nil
	kind    kind
	epochs  int64 // of the cluster, so far
	// when addresses were first attached at a call; 0 = they were listed at first
	met      map[int64]int64
	wiped    int64 // how often a master has lost what it had noted
	watchers []*sentinel
	clients  []*client
	lastID   int64 // of nonces and incarnations
	lagUntil int64
	check    checker
	made     int64 // faults of schedule
	losses   int64 // that scripts have noticed
	history  []string
}

func (s *sim) has(r rule) bool     { return !s.removed.has(r) }
func (s *sim) faulty(c class) bool { return s.faults&c != 0 }

// upTo draws 0 ≤ n < limit.
func (s *sim) upTo(limit int64) int64     { return s.rnd.Int64N(max(limit, 1)) }
func (s *sim) between(lo, hi int64) int64 { return lo + s.upTo(hi-lo+1) }
func (s *sim) oneIn(n int64) bool         { return s.upTo(n) == 0 }

func (s *sim) after(wait int64, do func()) {
	s.seq++
	heap.Push(&s.events, event{s.now + wait, s.seq, do})
}

func (s *sim) newID() int64 {
	s.lastID++
	return s.lastID
}

// tellf adds to the history a line about a worker, or with -1 about all.
func (s *sim) tellf(worker int, format string, args ...any) {
	if s.trace >= 0 && (worker < 0 || worker == s.trace) {
		s.history = append(s.history, fmt.Sprintf("%7d  ", s.now)+fmt.Sprintf(format, args...))
	}
}

// longest is the longest TTL that a client asks for.
func (s *sim) longest() int64 {
	if s.faulty(twoTTLs|defaultTTLs) || !s.has(alike) {
		return 3 * s.ttl
	}
	return s.ttl
}

// shape is what the pool's ids look like; 0 is the default.
func (s *sim) shape() int {
	if s.faulty(shapes) {
		return 3
	}
	return 0
}

// declared is what the pool is declared as.
func (s *sim) declared() terms {
	asked := terms{ttl: s.ttl, longest: s.longest(), shape: s.shape()}
	if s.faulty(defaultTTLs) {
		asked.ttl = s.longest()
	}
	return asked
}

// declareNew begins a pool that an operator has declared new in time.
func (s *sim) declareNew() {
	c := &client{s: s}
	c.learn(s.master)
	s.master.create(s.declared(), c.facts(s.master))
	for _, v := range s.servers {
		v.state = s.master.state
		v.file = v.saved()
	}
}

// newGroup starts a master and its replicas.
func (s *sim) newGroup(servers int64, first int) *group {
	g := &group{}
	for i := range int(servers) {
		g.servers = append(g.servers, newServer(s, g, first+i))
	}
	s.promote(g.servers[0])
	return g
}

func run(c config) *sim {
	s := &sim{config: c, rnd: rand.New(rand.NewPCG(c.seed, uint64(c.faults))), met: map[int64]int64{}}
	s.check = newChecker(s)
	s.ttl = s.between(600, 1200)
	s.skew = s.between(80, 400)
	s.margin, s.lead, s.unit = 20, 5, 1
	s.rare, s.awake = s.between(3, 16), s.between(2, 20)
	if s.faulty(cooling) {
		s.cooldown = s.between(10, s.ttl/2)
	}
	if s.faulty(coarse) {
		s.unit = s.between(10, s.ttl/2)
	}
	s.appends = s.oneIn(2)
	s.now = 1_000_000
	end := s.now + c.length
	s.kind = s.drawKind()
	servers := 2 + s.upTo(2) + s.upTo(2)
	if s.kind == lone {
		servers = 1
	}
	s.group = s.newGroup(servers, 0)
	if s.kind == sentinelSet {
		s.startSentinels()
	}
	if s.kind == clustered {
		s.other = s.newGroup(2, len(s.servers))
	}
	n := int64(max(2, s.ring*3/4))
	if s.faulty(twoTTLs|defaultTTLs|shapes) || s.oneIn(2) {
		s.declareNew()
	}
	for i := range s.between(n, 2*n) {
		s.clients = append(s.clients, newClient(s, int(i)))
	}
	s.schedule(end)
	for len(s.events) > 0 && s.check.violation == "" {
		e := heap.Pop(&s.events).(event)
		if e.at > end {
			break
		}
		s.now = e.at
		s.steps++
		e.do()
	}
	return s
}
